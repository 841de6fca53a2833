"""The scheduling queue: which pod is tried next, and which events cause another attempt for an unschedulable pod.

As in kube-scheduler's queue, a pod is in one state. Active: a heap by priority, time of queueing (PrioritySort) and
age. Backoff: its time doubles with each attempt. Unschedulable: the pod waits for events that can help the plugins that
rejected it; time alone moves no pod from here, unlike flushUnschedulablePodsLeftover in kube-scheduler. In flight: the
decision is not made yet. Blocked: ready, but its namespace has its maximum number of writes in progress.

Unschedulable pods of one signature are equal in everything that plugins read, and share one answer. An event requeues
only one of them, the probe. If it finds a node, the next pod becomes the probe; otherwise all wait again. A new pod
joins them without an attempt as long as the answer holds. A probe that is deleted, changes or gets another signature is
replaced at once, because its event may still help the others.

An entry may stand for a group (`set_entry_of`). It has a name in place of a uid, and takes turns with other groups
(`GroupTurns`). An urgent group comes before all others of its priority, and events requeue it without backoff.

No event is lost for an entry whose decision is in progress (`missed_since`). A requeued pod still waits for the end of
its backoff, and an attempt gives it a new time of queueing, so a pod that never fits does not delay others.

Cost: O(log n) for a pod, amortized. An event reads each distinct set of awaited events, about as many as combinations
of plugins that reject pods, and takes O(log n) for each signature that it requeues.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from functools import reduce
from itertools import islice
from operator import attrgetter, or_
from typing import Literal

from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.queue.entry import Entry, EntryHeap, EqualPods, GroupTurns

_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 10.0
# The events that move a pod to a state, in kube-scheduler's words; ``ClusterEvent`` stands for all events that can help
# an unschedulable pod.
QueueEvent = Literal["PodAdd", "BackoffComplete", "ScheduleAttemptFailure", "ClusterEvent"]

# kube-scheduler's metrics have no value for blocked pods.
_COUNTED_AS: Mapping[str, str] = {"blocked": "backoff"}


class Queue:
    """Pods by uid and groups by name, each in one state: active, backoff, unschedulable, blocked or in flight."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._active = EntryHeap(self._entries, attrgetter("sort_key"))
        self._active_groups = EntryHeap(self._entries, attrgetter("sort_key"))
        self._turns = GroupTurns(self._entries)
        self._backoff = EntryHeap(self._entries, attrgetter("backoff_key"))
        self._signatures: dict[Hashable, EqualPods] = {}
        # The signatures without a probe, by their events and in order: a set of texts differs in each process.
        self._signatures_by_event: dict[ClusterEvent, dict[Hashable, None]] = {}
        # Ready, but not to be popped, by namespace.
        self._blocked_uids: dict[str, dict[str, None]] = {}
        # By uid: the entry that stands for a pod without an entry of its own.
        self._entry_of: dict[str, str] = {}
        self._tickets = 0
        self._now = 0.0
        # The number of the last event, for `missed_since`, and the last number of each kind.
        self.event_number = 0
        self._last_numbers: dict[int, int] = {}
        # How many pods have come to a state, by event.
        self.arrivals: Counter[tuple[str, QueueEvent]] = Counter()

    def add(
        self,
        uid: str,
        priority: int,
        creation: str,
        now: float,
        *,
        is_urgent: bool = False,
        backoff_s: float = 0.0,
        since: float | None = None,
    ) -> None:
        """Add a pod, or requeue at once one that has changed; ``creation`` is its RFC 3339 time.

        With ``since``, it is a group that has been complete since then.
        """
        self._now = max(self._now, now)
        self.delete(uid)
        entry = Entry(uid, priority, creation, now, ready_at=now + backoff_s, is_urgent=is_urgent, since=since)
        if backoff_s:
            self._defer(entry, "ScheduleAttemptFailure")
        else:
            self._activate(entry, "PodAdd")

    def set_entry_of(self, uid: str, entry: str | None) -> None:
        """Let an entry stand for a pod that has none of its own; None ends that."""
        if entry is None:
            self._entry_of.pop(uid, None)
        else:
            self._entry_of[uid] = entry

    def delete(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        if entry.state == "unschedulable":
            self._leave_signature(entry)
        else:
            self._send_next(entry)
        for namespace_uids in self._blocked_uids.values() if entry.state == "blocked" else ():
            namespace_uids.pop(uid, None)

    def first(self, now: float) -> Entry | None:
        """Return the entry that `pop` would return."""
        self._end_backoffs(now)
        pod, group = self._active.first(), self._active_groups.first()
        if group is not None and (pod is None or group.sort_key < pod.sort_key):
            return self._turns.choose(group, self._now) or pod
        return pod

    def block(self, uid: str, namespace: str) -> None:
        """Set a ready entry aside until its namespace is unblocked."""
        entry = self._entries[uid]
        self._send_next(entry)
        self._move(entry, "blocked", "ScheduleAttemptFailure")
        self._blocked_uids.setdefault(namespace, {})[uid] = None

    def blocked_namespaces(self) -> list[str]:
        return list(self._blocked_uids)

    def unblock(self, namespace: str, limit: int) -> None:
        """Unblock this many entries of a namespace, the first blocked first."""
        namespace_uids = self._blocked_uids[namespace]
        for uid in list(islice(namespace_uids, limit)):
            del namespace_uids[uid]
            self._activate(self._entries[uid], "BackoffComplete")
        if not namespace_uids:
            del self._blocked_uids[namespace]

    def pop(self, now: float) -> str | None:
        """Return the next pod's uid, or a group's name, and count the attempt; None if none is ready."""
        if (entry := self.first(now)) is None:
            return None
        # Its items in the heaps are outdated from now on.
        self._tickets += 1
        entry.ticket = entry.attempt_ticket = self._tickets
        if entry.since is not None:
            self._turns.begin(entry, now)
        entry.state = "in_flight"
        entry.attempts += 1
        entry.queued_at = now
        entry.ready_at = now + min(_FIRST_BACKOFF_S * 2 ** min(entry.attempts - 1, 8), _LONGEST_BACKOFF_S)
        return entry.uid

    def earliest(self, groups: Iterable[str]) -> str:
        """Return which of these groups comes first by priority and age; empty if there is none."""
        return min((self._entries[uid].age_key for uid in groups), default=("",))[-1]

    def is_in_flight(self, uid: str) -> bool:
        return self._entry(uid, "in_flight") is not None

    def is_unschedulable(self, uid: str) -> bool:
        return self._entry(uid, "unschedulable") is not None

    @property
    def has_unschedulable(self) -> bool:
        return bool(self._signatures)

    def answer_of(self, signature: Hashable) -> str:
        """Return the unschedulable pod whose answer holds for a signature; empty if an event may have helped."""
        pods = self._signatures.get(signature)
        return pods.answer_of if pods is not None and not pods.probe and pods.answer_of in pods.members else ""

    def note_placement(self, uid: str) -> None:
        """Record that a popped pod got a node: the next pod of its signature may get one too."""
        entry = self._entries.get(uid)
        pods = self._signatures.get(entry.signature) if entry is not None else None
        if entry is not None and pods is not None and pods.probe in ("", uid):
            self._end_wait(entry.signature, pods)
            self._send_probe(pods)

    def add_unschedulable(self, uid: str, waits_for: ClusterEvent, signature: Hashable = None) -> frozenset[str]:
        """Set a popped pod aside until one of these events happens; without events, until it changes itself.

        Return the other pods of its ``signature`` whose awaited events change with it.
        """
        if (entry := self._entry(uid, "in_flight")) is None:
            return frozenset()
        signature = uid if signature is None or not waits_for else signature
        if entry.signature != signature:
            self._send_next(entry)
        pods = self._signatures.setdefault(signature, EqualPods(self._entries, waits_for))
        differs = frozenset(pods.members) if pods.waits_for != waits_for else frozenset()
        self._end_wait(signature, pods)
        pods.waits_for, pods.probe, pods.answer_of = waits_for, "", uid
        self._signatures_by_event.setdefault(waits_for, {})[signature] = None
        entry.signature = signature
        self._move(entry, "unschedulable", "ScheduleAttemptFailure")
        pods.add(entry)
        return differs

    def retry(self, uid: str) -> None:
        """Requeue a popped pod after its backoff."""
        if (entry := self._entry(uid, "in_flight")) is not None:
            self._defer(entry, "ScheduleAttemptFailure")

    def move_pods_on_event(self, uids: Iterable[str], cluster_event: ClusterEvent, now: float) -> None:
        """Do as `move_on_event` for an event that only concerns these pods and their signatures."""
        self._now = max(self._now, now)
        uids = list(dict.fromkeys(self._entry_of.get(uid, uid) for uid in uids))
        if any(self.is_in_flight(uid) for uid in uids):
            self._note(cluster_event)
        entries = [entry for uid in uids if (entry := self._entry(uid, "unschedulable")) is not None]
        for signature in dict.fromkeys(entry.signature for entry in entries):
            pods = self._signatures.get(signature)
            if pods is not None and pods.waits_for & cluster_event and not pods.probe:
                self._end_wait(signature, pods)
                self._send_probe(pods)

    def requeue(self, uid: str) -> None:
        """Requeue one unschedulable pod after its backoff, whatever it waits for."""
        entry = self._entry(self._entry_of.get(uid, uid), "unschedulable")
        if entry is not None:
            self._leave_signature(entry)
            self._requeue(entry)

    def move_on_event(self, cluster_event: ClusterEvent, now: float) -> None:
        """Requeue one pod of each signature, after its backoff, that waits for any of these events."""
        self._now = max(self._now, now)
        self._note(cluster_event)
        for waits_for in [waits_for for waits_for in self._signatures_by_event if waits_for & cluster_event]:
            for signature in self._signatures_by_event.pop(waits_for):
                self._send_probe(self._signatures[signature])

    def missed_since(self, number: int) -> ClusterEvent:
        """Return the events after a number: they may have helped an entry during its decision."""
        missed_events = [ClusterEvent(value) for value, last in self._last_numbers.items() if last > number]
        return reduce(or_, missed_events, NO_EVENT)

    def _note(self, cluster_event: ClusterEvent) -> None:
        self.event_number += 1
        # `value` is a property, and this runs for each pod that is placed.
        self._last_numbers[cluster_event._value_] = self.event_number

    def next_ready(self) -> float | None:
        """Return when the first pod in backoff becomes ready, or a group takes the next turn; None if none does."""
        entry = self._backoff.first()
        times = [entry.ready_at] if entry is not None else []
        if self._active_groups.first() is not None:
            times.append(self._turns.early_at)
        return min(times, default=None)

    def depths(self) -> dict[str, int]:
        counts = dict.fromkeys(("active", "backoff", "unschedulable", "in_flight"), 0)
        for entry in self._entries.values():
            counts[_COUNTED_AS.get(entry.state, entry.state)] += 1
        return counts

    def uids(self) -> Iterable[str]:
        return self._entries.keys()

    def check(self) -> None:
        """Assert that every pod is in exactly one state, and that every unschedulable one can be requeued."""
        active, backoff = [*self._active.uids(), *self._active_groups.uids()], list(self._backoff.uids())
        unschedulable = [uid for pods in self._signatures.values() for uid in pods.members]
        blocked_uids = [uid for uids in self._blocked_uids.values() for uid in uids]
        states = (("active", active), ("backoff", backoff), ("unschedulable", unschedulable), ("blocked", blocked_uids))
        for state, uids in states:
            state_uids = {uid for uid, entry in self._entries.items() if entry.state == state}
            assert len(uids) == len(set(uids)), f"{state}: a pod is in it twice"
            assert set(uids) == state_uids, f"{state}: {sorted(set(uids) ^ state_uids)} differ"
        for signature, pods in self._signatures.items():
            pods.check(signature)
            is_waiting = signature in self._signatures_by_event.get(pods.waits_for, ())
            assert is_waiting != bool(pods.probe), f"signature {signature!r}: either it waits or it has a probe"
            assert not pods.probe or pods.probe in self._entries, f"signature {signature!r}: its probe is gone"
        strays = set().union(*self._signatures_by_event.values()) - self._signatures.keys()
        assert not strays, f"signatures that wait without a pod: {strays}"
        self._turns.check({uid: entry for uid, entry in self._entries.items() if entry.since is not None})

    def _entry(self, uid: str, state: str) -> Entry | None:
        entry = self._entries.get(uid)
        return entry if entry is not None and entry.state == state else None

    def _end_backoffs(self, now: float) -> None:
        self._now = max(self._now, now)
        while (entry := self._backoff.first()) is not None and entry.ready_at <= now:
            self._backoff.pop()
            self._activate(entry, "BackoffComplete")

    def _activate(self, entry: Entry, event: QueueEvent) -> None:
        self._move(entry, "active", event)
        entry.active_at = self._now
        (self._active if entry.since is None else self._active_groups).push(entry)

    def _requeue(self, entry: Entry) -> None:
        """Requeue a pod that an event can help."""
        (self._activate if entry.is_urgent else self._defer)(entry, "ClusterEvent")

    def _defer(self, entry: Entry, event: QueueEvent) -> None:
        self._move(entry, "backoff", event)
        self._backoff.push(entry)

    def _move(self, entry: Entry, state: str, event: QueueEvent) -> None:
        self._tickets += 1
        self.arrivals[_COUNTED_AS.get(state, state), event] += 1
        self._entries[entry.uid] = entry
        entry.ticket, entry.state = self._tickets, state
        if entry.since is not None:
            entry.is_awaited = event == "ClusterEvent"
            self._turns.put(entry)

    def _leave_signature(self, entry: Entry) -> None:
        pods = self._signatures[entry.signature]
        pods.members.discard(entry.uid)
        self._drop_if_empty(entry.signature, pods)

    def _drop_if_empty(self, signature: Hashable, pods: EqualPods) -> None:
        if not pods.members:
            self._end_wait(signature, pods)
            del self._signatures[signature]

    def _end_wait(self, signature: Hashable, pods: EqualPods) -> None:
        signatures = self._signatures_by_event.get(pods.waits_for, {})
        signatures.pop(signature, None)
        if not signatures:
            self._signatures_by_event.pop(pods.waits_for, None)

    def _send_next(self, entry: Entry) -> None:
        """Requeue another pod of the signature if this one was the probe and will give no answer."""
        pods = self._signatures.get(entry.signature)
        if pods is not None and pods.probe == entry.uid:
            self._send_probe(pods)

    def _send_probe(self, pods: EqualPods) -> None:
        """Requeue the first pod whose backoff is over; if there is none, the one whose backoff ends first."""
        entry = pods.take_probe(self._now)
        self._drop_if_empty(entry.signature, pods)
        self._requeue(entry)
