"""Which pod is looked at next.

Active pods go by priority, then by how long they are in the queue, as kube-scheduler's PrioritySort has it; pods that
came together go by age. A pod that was tried waits out its backoff, 1 s doubled with every try to 10 s. A pod that fits
nowhere is unschedulable until something happens that can help one of the rules that refused it: no polling.

Parked pods of one signature (equal in all that a rule reads) share one answer. What happens requeues the first of them
only, the scout: finds it a place, the next is requeued, finds it none, none of the others would. One that comes while
the answer still holds joins them. So a flood of replicas that fit nowhere costs one decision, not one each, when it
comes and whatever happens then, however often.
"""

import enum
import heapq
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 10.0
# Who comes first; the uid at its end is nobody else's. In a heap the ticket follows, in one flat tuple: to compare
# nested ones takes twice as long.
Order = tuple[int, float, str, str]
_Ordered = tuple[int, float, str, str, int]
_Timed = tuple[float, str, int]
# What brings a pod to a place, in kube-scheduler's words; ``ClusterEvent`` stands for all that can help a unschedulable
# pod.
Incoming = Literal["PodAdd", "BackoffComplete", "ScheduleAttemptFailure", "ClusterEvent"]


class ClusterEvent(enum.Flag):
    """What can help a unschedulable pod; kube-scheduler's ClusterEvents, as far as a rule of ours asks for them."""

    NODE_ADDED = enum.auto()
    NODE_REMOVED = enum.auto()  # its pods no longer count: skew and objections may be gone with it
    NODE_LABELS = enum.auto()
    NODE_TAINTS = enum.auto()  # or it was made schedulable again
    NODE_ALLOCATABLE = enum.auto()
    NODE_INVENTORY = enum.auto()  # its VFs, or that they may be given: boot, readiness
    NODE_UNITS = enum.auto()  # its units of another kind
    POD_GONE = enum.auto()  # a pod left its node: cpu, memory and its place among the pods are free, its labels gone
    PORTS_FREED = enum.auto()  # and so are host ports
    VFS_FREED = enum.auto()  # and so are VFs and their rates
    UNITS_FREED = enum.auto()  # and so are units of another kind
    POD_ASSIGNED = enum.auto()  # a pod is on a node that was not there before: affinity, spread
    POD_LABELS = enum.auto()  # the labels of a pod on a node changed: affinity, spread
    NAMESPACE = enum.auto()  # a namespace is new or its labels changed: a namespaceSelector may take it
    CLAIM = enum.auto()  # one of the pod's own volume claims is new or changed
    VOLUME = enum.auto()  # a volume is new or changed
    STORAGE_CLASS = enum.auto()  # a storage class is new, or makes volumes for other nodes, or larger ones
    ATTACHMENTS = enum.auto()  # a volume was detached, or a node can attach more of them
    VOLUMES_FREED = enum.auto()  # a pod left its node that used claims or disks
    # Whatever a node can bring.
    NODE = NODE_ADDED | NODE_LABELS | NODE_TAINTS | NODE_ALLOCATABLE | NODE_INVENTORY | NODE_UNITS


NO_EVENT = ClusterEvent(0)


@dataclass(slots=True)
class _Entry:
    """A pod in the queue; ``ticket`` tells its valid heap entry from those left behind."""

    uid: str
    priority: int
    created: str
    queued_at: float
    attempts: int = 0
    ready_at: float = 0.0
    ticket: int = 0
    place: str = ""
    signature: Hashable = None

    @property
    def order(self) -> Order:
        return (-self.priority, self.queued_at, self.created, self.uid)


@dataclass(slots=True)
class _SignatureGroup:
    """The unschedulable pods that share an answer, in two heaps.

    Those whose backoff is over are ordered as in the active queue, the others by the end of their backoff.
    """

    waits_for: ClusterEvent
    members: set[str] = field(default_factory=set)
    ripe: list[_Ordered] = field(default_factory=list)
    unripe: list[_Timed] = field(default_factory=list)
    # Who was sent to look whether what has happened helps; empty while nothing has.
    probe: str = ""
    # Whose answer it is.
    asker: str = ""


class Queue:
    """Pods by uid, each in exactly one place: active, backoff, unschedulable, or out (popped, its outcome awaited)."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._active: list[_Ordered] = []
        self._backoff: list[_Timed] = []
        self._kins: dict[Hashable, _SignatureGroup] = {}
        self._waiting: dict[ClusterEvent, set[Hashable]] = {}
        self._tickets = 0
        self._now = 0.0
        # What has happened since the last pod was popped: it may have helped that one while it was decided about.
        self.missed = NO_EVENT
        # How many pods have come to a place, and by what.
        self.incoming: Counter[tuple[str, Incoming]] = Counter()

    def add(self, uid: str, priority: int, created: str, now: float) -> None:
        """Take in a pod, or look again at once at one that changed itself; ``created`` is its RFC 3339 time."""
        self._now = max(self._now, now)
        self.delete(uid)
        self._activate(_Entry(uid, priority, created, now, ready_at=now), "PodAdd")

    def delete(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        if entry.place == "unschedulable":
            self._unpark(entry)
        else:
            self._send_next(entry)

    def pop(self, now: float) -> str | None:
        """Return the next pod's uid and count the try; None if none is ready."""
        self._ripen(now)
        while self._active:
            _, _, _, uid, ticket = heapq.heappop(self._active)
            entry = self._entries.get(uid)
            if entry is not None and entry.ticket == ticket:
                self.missed = NO_EVENT
                entry.place = "in_flight"
                entry.attempts += 1
                entry.queued_at = now
                entry.ready_at = now + min(_FIRST_BACKOFF_S * 2 ** min(entry.attempts - 1, 8), _LONGEST_BACKOFF_S)
                return uid
        return None

    def is_tried(self, uid: str) -> bool:
        """Return whether a pod was popped, and nothing has become of that yet."""
        entry = self._entries.get(uid)
        return entry is not None and entry.place == "in_flight"

    @property
    def has_unschedulable(self) -> bool:
        """Return whether any pod is unschedulable."""
        return bool(self._kins)

    def answered(self, signature: Hashable) -> str:
        """Return the unschedulable pod whose answer holds for its whole signature; empty if something may have helped.

        A new pod of that signature needs no scheduling attempt.
        """
        group = self._kins.get(signature)
        return group.asker if group is not None and not group.probe and group.asker in group.members else ""

    def placed(self, uid: str) -> None:
        """Say that a popped pod found a place: the next of its signature may find one too."""
        entry = self._entries.get(uid)
        group = self._kins.get(entry.signature) if entry is not None else None
        if entry is not None and group is not None and group.probe in ("", uid):
            self._stop_waiting(entry.signature, group)
            self._send_scout(group)

    def add_unschedulable(self, uid: str, waits_for: ClusterEvent, signature: Hashable = None) -> frozenset[str]:
        """Set a popped pod aside until something that it waits for happens; nothing: until it changes itself.

        The answer holds for all of its ``signature``. Return the others of them that wait for something else by it.
        """
        entry = self._entries.get(uid)
        if entry is None or entry.place != "in_flight":
            return frozenset()
        signature = uid if signature is None or not waits_for else signature
        if entry.signature != signature:
            self._send_next(entry)
        group = self._kins.setdefault(signature, _SignatureGroup(waits_for))
        differs = frozenset(group.members) if group.waits_for != waits_for else frozenset()
        self._stop_waiting(signature, group)
        group.waits_for, group.probe, group.asker = waits_for, "", uid
        self._waiting.setdefault(waits_for, set()).add(signature)
        self._move(entry, "unschedulable", signature, "ScheduleAttemptFailure")
        group.members.add(uid)
        heapq.heappush(group.unripe, (entry.ready_at, uid, entry.ticket))
        return differs

    def retry(self, uid: str) -> None:
        """Let a popped pod come again after its backoff."""
        entry = self._entries.get(uid)
        if entry is not None and entry.place == "in_flight":
            self._defer(entry, "ScheduleAttemptFailure")

    def move_pods_on_event(self, uids: Iterable[str], cluster_event: ClusterEvent, now: float) -> None:
        """Do as `move_on_event` for what has happened to these pods only, and to their signature."""
        self._now = max(self._now, now)
        uids = list(uids)
        if any(self.is_tried(uid) for uid in uids):
            self.missed |= cluster_event
        unschedulable = [
            self._entries[uid].signature
            for uid in uids
            if uid in self._entries and self._entries[uid].place == "unschedulable"
        ]
        for signature in dict.fromkeys(unschedulable):
            group = self._kins.get(signature)
            if group is not None and group.waits_for & cluster_event and not group.probe:
                self._stop_waiting(signature, group)
                self._send_scout(group)

    def requeue(self, uid: str) -> None:
        """Let one unschedulable pod come again after its backoff, whatever it waits for."""
        entry = self._entries.get(uid)
        if entry is not None and entry.place == "unschedulable":
            self._unpark(entry)
            self._defer(entry, "ClusterEvent")

    def move_on_event(self, cluster_event: ClusterEvent, now: float) -> None:
        """Let one pod of each signature come again, after its backoff, that waits for any of what has happened."""
        self._now = max(self._now, now)
        # Of two flags Python makes the third slowly, and each pod that is placed requeues others.
        self.missed = cluster_event if self.missed is NO_EVENT else self.missed | cluster_event
        for waits_for in [waits_for for waits_for in self._waiting if waits_for & cluster_event]:
            for signature in self._waiting.pop(waits_for):
                self._send_scout(self._kins[signature])

    def next_ready(self) -> float | None:
        """Return when the first pod in backoff becomes ready; None if there is none."""
        while self._backoff and not self._is_valid(self._backoff[0]):
            heapq.heappop(self._backoff)
        return self._backoff[0][0] if self._backoff else None

    def depths(self) -> dict[str, int]:
        """Count the pods by place."""
        counts = dict.fromkeys(("active", "backoff", "unschedulable", "in_flight"), 0)
        for entry in self._entries.values():
            counts[entry.place] += 1
        return counts

    def uids(self) -> Iterable[str]:
        return self._entries.keys()

    def check(self) -> None:
        """Assert that every pod is in exactly one place, and that every unschedulable one can be requeued."""
        active, backoff = self._standing(self._active), self._standing(self._backoff)
        unschedulable = [uid for group in self._kins.values() for uid in group.members]
        for place, uids in (("active", active), ("backoff", backoff), ("unschedulable", unschedulable)):
            expected = {uid for uid, entry in self._entries.items() if entry.place == place}
            assert len(uids) == len(set(uids)), f"a pod stands twice among those {place}"
            assert set(uids) == expected, f"{place}: {sorted(set(uids) ^ expected)} differ"
        for signature, group in self._kins.items():
            assert group.members, f"signature {signature!r} is kept without a pod"
            inside = self._standing(group.ripe) + self._standing(group.unripe)
            assert sorted(inside) == sorted(group.members), (
                f"signature {signature!r}: its heaps differ from its members"
            )
            waiting = signature in self._waiting.get(group.waits_for, ())
            assert waiting != bool(group.probe), f"signature {signature!r} neither waits nor has a scout on the way"
            assert not group.probe or group.probe in self._entries, (
                f"signature {signature!r} waits for a scout that is gone"
            )
        strays = {signature for kins in self._waiting.values() for signature in kins} - self._kins.keys()
        assert not strays, f"kins that wait and are not known: {strays}"

    def _standing(self, heap: Sequence[_Ordered | _Timed]) -> list[str]:
        return [one[-2] for one in heap if self._is_valid(one)]

    def _ripen(self, now: float) -> None:
        self._now = max(self._now, now)
        while self._backoff and (self._backoff[0][0] <= now or not self._is_valid(self._backoff[0])):
            heap_entry = heapq.heappop(self._backoff)
            if self._is_valid(heap_entry):
                self._activate(self._entries[heap_entry[-2]], "BackoffComplete")

    def _is_valid(self, heap_entry: _Ordered | _Timed) -> bool:
        entry = self._entries.get(heap_entry[-2])
        return entry is not None and entry.ticket == heap_entry[-1]

    def _activate(self, entry: _Entry, event: Incoming) -> None:
        self._move(entry, "active", entry.signature, event)
        heapq.heappush(self._active, (*entry.order, entry.ticket))

    def _defer(self, entry: _Entry, event: Incoming) -> None:
        self._move(entry, "backoff", entry.signature, event)
        heapq.heappush(self._backoff, (entry.ready_at, entry.uid, entry.ticket))

    def _move(self, entry: _Entry, place: str, signature: Hashable, event: Incoming) -> None:
        self._tickets += 1
        self.incoming[place, event] += 1
        self._entries[entry.uid] = entry
        entry.ticket, entry.place, entry.signature = self._tickets, place, signature

    def _unpark(self, entry: _Entry) -> None:
        group = self._kins[entry.signature]
        group.members.discard(entry.uid)
        if not group.members:
            self._drop(entry.signature, group)

    def _drop(self, signature: Hashable, group: _SignatureGroup) -> None:
        self._stop_waiting(signature, group)
        del self._kins[signature]

    def _stop_waiting(self, signature: Hashable, group: _SignatureGroup) -> None:
        waiting = self._waiting.get(group.waits_for, set())
        waiting.discard(signature)
        if not waiting:
            self._waiting.pop(group.waits_for, None)

    def _send_next(self, entry: _Entry) -> None:
        """Send another of its signature where a scout has found a place, or will never tell."""
        group = self._kins.get(entry.signature)
        if group is not None and group.probe == entry.uid:
            self._send_scout(group)

    def _send_scout(self, group: _SignatureGroup) -> None:
        """Let the best of those come whose backoff is over; where there is none, the first whose backoff will be."""
        while group.unripe and (group.unripe[0][0] <= self._now or not self._is_valid(group.unripe[0])):
            heap_entry = heapq.heappop(group.unripe)
            if self._is_valid(heap_entry):
                heapq.heappush(group.ripe, (*self._entries[heap_entry[-2]].order, heap_entry[-1]))
        while group.ripe and not self._is_valid(group.ripe[0]):
            heapq.heappop(group.ripe)
        uid = (heapq.heappop(group.ripe) if group.ripe else heapq.heappop(group.unripe))[-2]
        entry = self._entries[uid]
        group.probe = uid
        group.members.discard(uid)
        if not group.members:
            self._drop(entry.signature, group)
        self._defer(entry, "ClusterEvent")
