"""The unschedulable pods that share an answer. Pure."""

from collections.abc import Hashable, Mapping
from operator import attrgetter

from scheduler.kube.cluster_event import ClusterEvent
from scheduler.queue.entry import Entry, EntryHeap


class SignatureGroup:
    """Unschedulable pods of one signature, and the event that they wait for, in two heaps.

    Those whose backoff is over are ordered as in the active queue, the others by the end of their backoff.
    """

    def __init__(self, entries: Mapping[str, Entry], waits_for: ClusterEvent) -> None:
        self.waits_for = waits_for
        self.members: set[str] = set()
        # The pod that an event has requeued for the group; empty if there is none.
        self.probe = ""
        # The pod whose answer holds for the group.
        self.answer_of = ""
        self._ready = EntryHeap(entries, attrgetter("sort_key"))
        self._in_backoff = EntryHeap(entries, attrgetter("backoff_key"))

    def add(self, entry: Entry) -> None:
        self.members.add(entry.uid)
        self._in_backoff.push(entry)

    def take_probe(self, now: float) -> Entry:
        """Remove and return the first pod whose backoff is over, or otherwise the one whose backoff ends first."""
        while (entry := self._in_backoff.first()) is not None and entry.ready_at <= now:
            self._in_backoff.pop()
            self._ready.push(entry)
        probe = self._ready.pop() or self._in_backoff.pop()
        assert probe is not None, "a group without a pod is not kept"
        self.probe = probe.uid
        self.members.discard(probe.uid)
        return probe

    def check(self, signature: Hashable) -> None:
        """Assert that there are members, and that they are those in the heaps."""
        uids = sorted([*self._ready.uids(), *self._in_backoff.uids()])
        assert uids == sorted(self.members), f"signature {signature!r}: its heaps differ from its members"
        assert uids, f"signature {signature!r} is kept without a pod"
