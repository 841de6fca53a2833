"""The scheduling queue: which pod is tried next, and what lets an unschedulable pod be tried again.

What it is: every pod is in one place, as in kube-scheduler's scheduling queue.

- active: a heap by priority, then by the time of queueing (PrioritySort), then by age.
- backoff: a heap by the end of the backoff, which is 1 s after the first try and doubles with each try to 10 s.
- unschedulable: no node fits. The pod waits for the cluster events that can help the plugins that refused it. Unlike in
  kube-scheduler (flushUnschedulablePodsLeftover), time alone moves no pod from here.
- in flight: popped, and the outcome is not known yet.
- held: ready, but its namespace has as many writes under way as it may have (`scheduler/state/open_writes.py`).

Unschedulable pods of one signature, which are equal in all that plugins read, form a group with one answer. An event
requeues one pod of a group only, its probe. If the probe finds a node, the next pod of the group becomes the probe. If
it finds none, neither would the others: the group waits again, by the probe's answer. A new pod joins a group without a
try as long as the answer holds.

An entry may stand for a group: pods that are decided about together (`stand_for`). It has a name in place of a uid, and
takes turns with other groups by age (`group_turns.py`). An urgent one comes before all others of its priority, and an
event that can help it brings it back without backoff.

Why it is right:

- A move needs no search in a heap (`entry_heap.py`).
- A group either waits for events or has a probe under way, never neither (`check`). A probe that is deleted, changes
  itself or gets another signature is replaced at once, since what it was sent for may still help the others.
- No event is lost on a pod that is being decided about. `missed` has what happened since the last pop; the
  machine requeues the pod if that can help it. One pod is decided about at a time, so one value is enough. A group
  whose decision is set aside stays in flight while others are popped: `missed_since` tells what it has missed.
- A requeued pod still waits for the end of its backoff, and a try gives a pod a new time of queueing. So frequent
  events do not make a pod that never fits hold up the others of its priority.

What it costs: an operation on one pod takes O(log n), amortised. An event takes a look at each distinct set of awaited
events, of which there are about as many as combinations of plugins that refuse pods, and O(log n) for each group that
it requeues. 10,000 replicas that fit nowhere cost one decision when they come and one for each event that may help, not
10,000. The memory is one entry a pod and one tuple a heap item, including old ones that have not come to the top.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from itertools import islice
from operator import attrgetter
from typing import Literal

from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.queue.entry import Entry
from scheduler.queue.entry_heap import EntryHeap
from scheduler.queue.group_turns import GroupTurns
from scheduler.queue.probes import SignatureGroup

_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 10.0
# What brings a pod to a place, in kube-scheduler's words; ``ClusterEvent`` stands for all events that can help an
# unschedulable pod.
Incoming = Literal["PodAdd", "BackoffComplete", "ScheduleAttemptFailure", "ClusterEvent"]

# kube-scheduler's metrics know no held pods.
_COUNTED_AS: Mapping[str, str] = {"held": "backoff"}


class Queue:
    """Pods by uid, each in exactly one place: active, backoff, unschedulable, held or in flight."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._active = EntryHeap(self._entries, attrgetter("sort_key"))
        self._active_groups = EntryHeap(self._entries, attrgetter("sort_key"))
        self._turns = GroupTurns()
        self._backoff = EntryHeap(self._entries, attrgetter("backoff_key"))
        self._groups: dict[Hashable, SignatureGroup] = {}
        # In the order in which they came: a set of texts has another order in each process.
        self._waiting: dict[ClusterEvent, dict[Hashable, None]] = {}
        # Ready, but not to be popped, by namespace.
        self._held: dict[str, dict[str, None]] = {}
        # By uid the entry that stands for a pod which has none of its own.
        self._entry_of: dict[str, str] = {}
        self._tickets = 0
        self._now = 0.0
        # What has happened since the last pod was popped: it may have helped that one while it was decided about.
        self.missed = NO_EVENT
        # The number of what happened last, and of the last of each.
        self._happened = 0
        self._last: dict[int, int] = {}
        # How many pods have come to a place, and by what.
        self.incoming: Counter[tuple[str, Incoming]] = Counter()

    def add(
        self,
        uid: str,
        priority: int,
        created: str,
        now: float,
        *,
        is_urgent: bool = False,
        backoff_s: float = 0.0,
        since: float | None = None,
    ) -> None:
        """Take in a pod, or look again at once at one that changed itself; ``created`` is its RFC 3339 time.

        With ``backoff_s``, look again after so many seconds. With ``since`` it is a group, complete since then.
        """
        self._now = max(self._now, now)
        self.delete(uid)
        entry = Entry(uid, priority, created, now, ready_at=now + backoff_s, is_urgent=is_urgent, since=since)
        if backoff_s:
            self._defer(entry, "ScheduleAttemptFailure")
        else:
            self._activate(entry, "PodAdd")

    def stand_for(self, uid: str, entry: str | None) -> None:
        """Let an entry stand for a pod that has none of its own; None: no longer."""
        if entry is None:
            self._entry_of.pop(uid, None)
        else:
            self._entry_of[uid] = entry

    def delete(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        if entry.since is not None:
            self._turns.drop(uid)
        if entry.place == "unschedulable":
            self._leave_group(entry)
        else:
            self._send_next(entry)
        for namespace_uids in self._held.values() if entry.place == "held" else ():
            namespace_uids.pop(uid, None)

    def first(self, now: float) -> str | None:
        """Return what `pop` would return."""
        entry = self._next(now)
        return None if entry is None else entry.uid

    def hold(self, uid: str, namespace: str) -> None:
        """Set aside what is ready, until its namespace is released."""
        entry = self._entries[uid]
        self._send_next(entry)
        self._move(entry, "held", entry.signature, "ScheduleAttemptFailure")
        self._held.setdefault(namespace, {})[uid] = None

    def held(self) -> list[str]:
        """Return the namespaces that are held."""
        return list(self._held)

    def release(self, namespace: str, limit: int) -> None:
        """Let so many of what is held of a namespace be popped again, the first held first."""
        namespace_uids = self._held[namespace]
        for uid in list(islice(namespace_uids, limit)):
            del namespace_uids[uid]
            self._activate(self._entries[uid], "BackoffComplete")
        if not namespace_uids:
            del self._held[namespace]

    def pop(self, now: float) -> str | None:
        """Return the next pod's uid and count the try; None if none is ready."""
        entry = self._next(now)
        if entry is None:
            return None
        self.missed = NO_EVENT
        if entry.since is not None:
            self._turns.begin(entry, now)
        # What the heaps have of it is invalid from now on.
        self._tickets += 1
        entry.ticket = entry.tried = self._tickets
        entry.place = "in_flight"
        entry.attempts += 1
        entry.queued_at = now
        entry.ready_at = now + min(_FIRST_BACKOFF_S * 2 ** min(entry.attempts - 1, 8), _LONGEST_BACKOFF_S)
        return entry.uid

    def has_ready(self, now: float, above: int | None = None) -> bool:
        """Return whether `pop` would return anything, with ``above`` of a higher priority than that."""
        entry = self._next(now)
        return entry is not None and (above is None or entry.priority > above)

    def earliest(self, groups: Iterable[str]) -> str:
        """Return which of these groups comes first by priority and age; empty if there is none."""
        return min((self._entries[uid].age_key for uid in groups), default=("",))[-1]

    def is_in_flight(self, uid: str) -> bool:
        """Return whether a pod was popped, and nothing has become of that yet."""
        entry = self._entries.get(uid)
        return entry is not None and entry.place == "in_flight"

    def is_unschedulable(self, uid: str) -> bool:
        """Return whether a pod waits for an event."""
        entry = self._entries.get(uid)
        return entry is not None and entry.place == "unschedulable"

    @property
    def has_unschedulable(self) -> bool:
        """Return whether any pod is unschedulable."""
        return bool(self._groups)

    def answered(self, signature: Hashable) -> str:
        """Return the unschedulable pod whose answer holds for its whole signature; empty if something may have helped.

        A new pod of that signature needs no scheduling attempt.
        """
        group = self._groups.get(signature)
        return group.answer_of if group is not None and not group.probe and group.answer_of in group.members else ""

    def placed(self, uid: str) -> None:
        """Record that a popped pod got a node: the next of its signature may get one too."""
        entry = self._entries.get(uid)
        group = self._groups.get(entry.signature) if entry is not None else None
        if entry is not None and group is not None and group.probe in ("", uid):
            self._stop_waiting(entry.signature, group)
            self._send_probe(group)

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
        group = self._groups.setdefault(signature, SignatureGroup(self._entries, waits_for))
        differs = frozenset(group.members) if group.waits_for != waits_for else frozenset()
        self._stop_waiting(signature, group)
        group.waits_for, group.probe, group.answer_of = waits_for, "", uid
        self._waiting.setdefault(waits_for, {})[signature] = None
        self._move(entry, "unschedulable", signature, "ScheduleAttemptFailure")
        group.add(entry)
        return differs

    def retry(self, uid: str) -> None:
        """Let a popped pod come again after its backoff."""
        entry = self._entries.get(uid)
        if entry is not None and entry.place == "in_flight":
            self._defer(entry, "ScheduleAttemptFailure")

    def move_pods_on_event(self, uids: Iterable[str], cluster_event: ClusterEvent, now: float) -> None:
        """Do as `move_on_event` for what has happened to these pods only, and to their signature."""
        self._now = max(self._now, now)
        uids = list(dict.fromkeys(self._entry_of.get(uid, uid) for uid in uids))
        if any(self.is_in_flight(uid) for uid in uids):
            self.missed |= cluster_event
            self._note(cluster_event)
        unschedulable = [
            self._entries[uid].signature
            for uid in uids
            if uid in self._entries and self._entries[uid].place == "unschedulable"
        ]
        for signature in dict.fromkeys(unschedulable):
            group = self._groups.get(signature)
            if group is not None and group.waits_for & cluster_event and not group.probe:
                self._stop_waiting(signature, group)
                self._send_probe(group)

    def requeue(self, uid: str) -> None:
        """Let one unschedulable pod come again after its backoff, whatever it waits for."""
        entry = self._entries.get(self._entry_of.get(uid, uid))
        if entry is not None and entry.place == "unschedulable":
            self._leave_group(entry)
            self._come_again(entry)

    def move_on_event(self, cluster_event: ClusterEvent, now: float) -> None:
        """Let one pod of each signature come again, after its backoff, that waits for any of what has happened."""
        self._now = max(self._now, now)
        # Of two flags Python makes the third slowly, and each pod that is placed requeues others.
        self.missed = cluster_event if self.missed is NO_EVENT else self.missed | cluster_event
        self._note(cluster_event)
        for waits_for in [waits_for for waits_for in self._waiting if waits_for & cluster_event]:
            for signature in self._waiting.pop(waits_for):
                self._send_probe(self._groups[signature])

    @property
    def happened(self) -> int:
        """The number of what has happened last, for `missed_since`."""
        return self._happened

    def missed_since(self, number: int) -> ClusterEvent:
        """Return what has happened after a number: to an entry that is in flight while others are popped."""
        cluster_events = NO_EVENT
        for value, last in self._last.items():
            if last > number:
                cluster_events |= ClusterEvent(value)
        return cluster_events

    def _note(self, cluster_event: ClusterEvent) -> None:
        self._happened += 1
        # `value` is a property, and each pod that is placed comes by here.
        self._last[cluster_event._value_] = self._happened

    def next_ready(self) -> float | None:
        """Return when the first pod in backoff becomes ready, or a group takes the next turn; None if none does."""
        entry = self._backoff.first()
        times = [entry.ready_at] if entry is not None else []
        if self._active_groups.first() is not None:
            times.append(self._turns.early_at)
        return min(times, default=None)

    def depths(self) -> dict[str, int]:
        """Count the pods by place."""
        counts = dict.fromkeys(("active", "backoff", "unschedulable", "in_flight"), 0)
        for entry in self._entries.values():
            counts[_COUNTED_AS.get(entry.place, entry.place)] += 1
        return counts

    def uids(self) -> Iterable[str]:
        return self._entries.keys()

    def check(self) -> None:
        """Assert that every pod is in exactly one place, and that every unschedulable one can be requeued."""
        active, backoff = [*self._active.uids(), *self._active_groups.uids()], list(self._backoff.uids())
        unschedulable = [uid for group in self._groups.values() for uid in group.members]
        held_uids = [uid for uids in self._held.values() for uid in uids]
        places = (("active", active), ("backoff", backoff), ("unschedulable", unschedulable), ("held", held_uids))
        for place, uids in places:
            uids_there = {uid for uid, entry in self._entries.items() if entry.place == place}
            assert len(uids) == len(set(uids)), f"{place}: a pod is in it twice"
            assert set(uids) == uids_there, f"{place}: {sorted(set(uids) ^ uids_there)} differ"
        for signature, group in self._groups.items():
            group.check(signature)
            is_waiting = signature in self._waiting.get(group.waits_for, ())
            assert is_waiting != bool(group.probe), (
                f"signature {signature!r} neither waits nor has a probe, or does both"
            )
            assert not group.probe or group.probe in self._entries, (
                f"signature {signature!r} waits for a probe that is gone"
            )
        strays = {signature for signatures in self._waiting.values() for signature in signatures} - self._groups.keys()
        assert not strays, f"signatures that wait without a group: {strays}"
        turns = {uid for uid, one in self._entries.items() if one.since is not None and one.place != "unschedulable"}
        self._turns.check(turns)

    def _next(self, now: float) -> Entry | None:
        """Return what is tried next; None if nothing is."""
        self._end_backoffs(now)
        pod, group = self._active.first(), self._active_groups.first()
        if group is not None and (pod is None or group.sort_key < pod.sort_key):
            choice = self._turns.choose(group, self._now)
            if choice is not None:
                return choice
        return pod

    def _end_backoffs(self, now: float) -> None:
        self._now = max(self._now, now)
        while (entry := self._backoff.first()) is not None and entry.ready_at <= now:
            self._backoff.pop()
            self._activate(entry, "BackoffComplete")

    def _activate(self, entry: Entry, event: Incoming) -> None:
        self._move(entry, "active", entry.signature, event)
        entry.active_at = self._now
        (self._active if entry.since is None else self._active_groups).push(entry)

    def _come_again(self, entry: Entry) -> None:
        """Let a pod come again that an event can help."""
        (self._activate if entry.is_urgent else self._defer)(entry, "ClusterEvent")

    def _defer(self, entry: Entry, event: Incoming) -> None:
        self._move(entry, "backoff", entry.signature, event)
        self._backoff.push(entry)

    def _move(self, entry: Entry, place: str, signature: Hashable, event: Incoming) -> None:
        self._tickets += 1
        self.incoming[_COUNTED_AS.get(place, place), event] += 1
        self._entries[entry.uid] = entry
        entry.ticket, entry.place, entry.signature = self._tickets, place, signature
        if entry.since is not None:
            entry.is_awaited = event == "ClusterEvent"
            self._turns.put(entry)

    def _leave_group(self, entry: Entry) -> None:
        group = self._groups[entry.signature]
        group.members.discard(entry.uid)
        self._drop_if_empty(entry.signature, group)

    def _drop_if_empty(self, signature: Hashable, group: SignatureGroup) -> None:
        if not group.members:
            self._stop_waiting(signature, group)
            del self._groups[signature]

    def _stop_waiting(self, signature: Hashable, group: SignatureGroup) -> None:
        signatures = self._waiting.get(group.waits_for, {})
        signatures.pop(signature, None)
        if not signatures:
            self._waiting.pop(group.waits_for, None)

    def _send_next(self, entry: Entry) -> None:
        """Requeue another pod of the signature if this one was the probe and will give no answer."""
        group = self._groups.get(entry.signature)
        if group is not None and group.probe == entry.uid:
            self._send_probe(group)

    def _send_probe(self, group: SignatureGroup) -> None:
        """Requeue the first pod whose backoff is over; if there is none, the one whose backoff ends first."""
        entry = group.take_probe(self._now)
        self._drop_if_empty(entry.signature, group)
        self._come_again(entry)
