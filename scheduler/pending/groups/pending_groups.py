"""Groups of waiting pods: which are complete and in the queue, and messages for the members of the others. Pure.

A group is one entry of the scheduling queue while enough of its members wait or are placed, and while its sources do
not contradict each other. Every change of a member's state and of a PodGroup ends in `_refresh`, which derives the
group's state again from the members and the sources, in the same time for groups of any size. What only adds
waiting members takes effect when a decision in progress ends; other changes restart it (`GroupDecision.must_restart`).
A message waits until nothing has changed for a few seconds, so that the n pods of a job do not get n messages each.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from mooring.kube.events import Change, Changed
from scheduler.cache.groups.group_cache import GroupCache, Member, Members, Rank
from scheduler.cycle.instructions import Instruction
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.group import Group, GroupKey, GroupMembership, membership_of_refused, read_group
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.workload_objects import AnyPodGroup, Job
from scheduler.pending.debounce import Debounce
from scheduler.pending.groups.group_reports import GroupReports, incomplete
from scheduler.pending.part import Part
from scheduler.queue.queue import Queue

# Seconds without a change after which members get the reason why their group is not scheduled; and the maximum.
_QUIET_S, _LOUD_S = 3.0, 30.0
# The wait doubles with each failure of a decision; all Bindings of one end within `_DECISION_S`.
_BACKOFF_S, _LONGEST_BACKOFF_S, _DECISION_S = 1.0, 10.0, 0.1


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The operator's options; times are in seconds, 0 for never."""

    # Room is reserved for a group that has waited this long.
    hold_s: float = 0.0
    # A group is evicted if fewer members than it needs have been placed for this long while others wait.
    end_half_s: float = 0.0
    # The first group gets a promised start.
    backfill: bool = False


NO_OPTIONS = GroupOptions()


@dataclass(slots=True)
class WaitingGroup:
    """The state of a group with waiting members.

    It is in the queue while ``message`` is empty; otherwise its members get the message. ``since`` is when it last
    entered or left the queue. ``group`` is None while its sources are rejected.
    """

    since: float
    group: Group | None = None
    message: str = "new"
    priority: int = 0
    creation: str = ""
    is_urgent: bool = False
    # A change arrived after the current decision had started.
    is_dirty: bool = False


@dataclass(slots=True)
class PendingGroups(Part):
    """The groups with waiting members, and the queue entries of those that are complete."""

    queue: Queue
    reports: GroupReports
    group_cache: GroupCache
    # The group for which room is reserved, if any.
    room_owner: GroupKey | None = None
    _states: dict[GroupKey, WaitingGroup] = field(default_factory=dict)
    # The groups that are not in the queue, and whose members have no message yet.
    _changes: Debounce[GroupKey] = field(default_factory=lambda: Debounce(_QUIET_S, _LOUD_S))
    # How often decisions have failed since a member was bound last, since when the group waits, and until when.
    _backoffs: dict[GroupKey, tuple[int, float, float]] = field(default_factory=dict)

    def take_waiting_pod(self, pod: Pod, pod_info: PodInfo | Refused, now: float) -> None:
        """Let any pod wait where its request belongs: in its group, or in the queue by itself."""
        uid, refused_membership = pod.metadata.uid, None
        if isinstance(pod_info, Refused):
            refused_membership = membership_of_refused(pod)
        elif pod_info.membership is not None:
            self.queue.delete(uid)
            self.put(uid, pod_info.membership, Member("waiting", rank=pod.rank), now)
            return
        if refused_membership is None:
            self.drop(uid, now)
        else:
            self.put(uid, refused_membership, Member("refused"), now)
        self.queue.add(uid, *pod.rank, now)

    def put(self, uid: str, membership: GroupMembership, member: Member, now: float) -> None:
        key, old_state, previous = membership.key, self.group_cache.state(uid), self.group_cache.of(uid)
        if previous is not None and previous.key != key:
            member = member._replace(is_latecomer=member.is_latecomer or old_state in ("placed", "leaving"))
            self.drop(uid, now)
        if member.state != "waiting":
            # If it was assumed before, it may be bound now.
            self.reports.members_changed(key, now)
        if previous == membership and member.state != "waiting" and old_state == member.state:
            old_member = self.members(key).pods[uid]
            if member.times is None or old_member.is_latecomer or old_member.times is not None:
                return
        elif old_state == member.state == "placed":
            # Its annotation has changed: other members may be victims now.
            self.queue.move_on_event(ClusterEvent.ROOM, now)
        self._set_state(uid, membership, member)
        self._refresh(key, now)

    def assume(self, key: GroupKey, uids: Collection[str], now: float) -> None:
        self.members(key).assume(uids, self.group(key).min)
        for uid in uids:
            self.queue.set_entry_of(uid, None)
        self._refresh(key, now)

    def release(self, ranks: Mapping[str, Rank | None], now: float) -> None:
        """Record that pods are no longer assumed: members with a rank wait again, the others were deleted."""
        keys = dict[GroupKey, None]()
        for uid, rank in ranks.items():
            if (membership := self.group_cache.of(uid)) is not None:
                keys[membership.key] = None
                if rank is None:
                    self.group_cache.drop(uid)
                else:
                    self._set_state(uid, membership, Member("waiting", rank=rank))
        for key in keys:
            self._refresh(key, now)

    def drop(self, uid: str, now: float) -> None:
        key = self.group_cache.drop(uid)
        if key is not None:
            self.queue.set_entry_of(uid, None)
            self._refresh(key, now)

    def take_pod_group(self, kind: type[AnyPodGroup], event: Change[AnyPodGroup], now: float) -> None:
        key = self.group_cache.pod_groups.key_of(kind, event.identity)
        previous = self.group_cache.pod_groups.get(key)
        self.group_cache.pod_groups.take(kind, event)
        current = self.group_cache.pod_groups.get(key)
        if current.priority != previous.priority or (previous.is_whole and not current.is_whole):
            # Its members may be victims now, each by itself.
            self.queue.move_on_event(ClusterEvent.ROOM, now)
        is_change = (current.group, current.is_whole) != (previous.group, previous.is_whole)
        if self.reports.pod_group_changed(key, previous.item, current.item, now) or is_change:
            self._refresh(key, now)

    def take_job(self, event: Change[Job], now: float) -> None:
        """Apply a watch event of a Job; if it cannot be read, its pods determine how many have succeeded."""
        count = event.item.status.succeeded if isinstance(event, Changed) else 0
        for key in self.group_cache.job_changed(event.identity.uid, max(count or 0, 0)):
            self._refresh(key, now)

    def get(self, key: GroupKey) -> WaitingGroup | None:
        """Return a group with waiting members; None for any other group."""
        return self._states.get(key)

    def in_queue(self, key: GroupKey) -> WaitingGroup | None:
        """Return a group with an entry in the queue, also one in flight or unschedulable; None for any other group."""
        state = self._states.get(key)
        return None if state is None or state.message else state

    def group(self, key: GroupKey) -> Group:
        """Return a group that is not rejected."""
        group = self._states[key].group
        assert group is not None, "a group that is rejected is not in the queue"
        return group

    def members(self, key: GroupKey) -> Members:
        """Return the members of a group that has some."""
        members = self.group_cache.get(key)
        assert members is not None, "a group without a pod is not known"
        return members

    def shortage(self, key: GroupKey, owners: Set[str]) -> int:
        """Return how many more members must be placed before any of these owners can be, at least one."""
        return max(self.members(key).shortage(owners, self.group(key).min), 1)

    def priority(self, key: GroupKey) -> int:
        """Return the priority of a group that waits: its PodGroup's if set, otherwise the lowest of its members."""
        return self._states[key].priority

    def end_decision(self, key: GroupKey, now: float) -> bool:
        """Record that a decision has ended; return whether the group is scheduled again, as something was added."""
        state = self._states.get(key)
        if state is None or not state.is_dirty:
            return False
        self._enqueue(key, state, now)
        return True

    def requeue(self, key: GroupKey, now: float) -> None:
        """Requeue a group at once if it is still in the queue: its decision was aborted, or left members waiting."""
        if (state := self.in_queue(key)) is not None:
            self._enqueue(key, state, now)

    def back_off(self, uid: str, now: float) -> None:
        """Requeue the group of a pod after a backoff, because its decision could not be carried out.

        The first time it is requeued at once if other members are placed already, but too few: the room for the rest
        is free now, and nothing reserves it. Failures during one wait count once.
        """
        membership = self.group_cache.of(uid)
        if membership is None or (state := self.in_queue(key := membership.key)) is None:
            return
        failures, start, end = self._backoffs.get(key, (0, 0.0, 0.0))
        if now >= end:
            end = now + min(_BACKOFF_S * 2 ** min(failures, 8), _LONGEST_BACKOFF_S)
            failures, start = failures + 1, now
            self._backoffs[key] = failures, start, end
        is_first = failures == 1 and now < start + _DECISION_S
        is_half = self.members(key).is_short(self.group(key).min)
        self._enqueue(key, state, now, 0.0 if is_first and is_half else end - now)

    def end_backoff(self, uid: str) -> None:
        """Reset the backoff of the group of a pod that is bound now."""
        if self._backoffs and (membership := self.group_cache.of(uid)) is not None:
            self._backoffs.pop(membership.key, None)

    def tick(self, now: float) -> Iterable[Instruction]:
        """Report to the waiting members of groups why these are not in the queue."""
        for key in self._changes.take(now):
            members = self.members(key)
            message = f"group {members.title}: {self._states[key].message}"
            self.reports.put(key, members.of("waiting"), message, now)
        return ()

    def next_due(self) -> float | None:
        return self._changes.next_due()

    @property
    def has_any(self) -> bool:
        return bool(self._states)

    def oldest(self, deadline: float, exceptions: Container[GroupKey] = ()) -> GroupKey | None:
        """Return the oldest group of the highest priority that has been in the queue since ``deadline``.

        A group that has as many members placed as it needs does not count.
        """
        ranks = [
            (-state.priority, state.creation, state.since, key)
            for key, state in self._states.items()
            if self.needs_start(key) and state.since <= deadline and key not in exceptions
        ]
        return min(ranks)[3] if ranks else None

    def needs_start(self, key: GroupKey) -> bool:
        """Return whether a group is in the queue and has fewer members placed than it needs."""
        return self.in_queue(key) is not None and self.members(key).current_count < self.group(key).min

    def half_groups(self) -> Iterator[tuple[GroupKey, int]]:
        """Yield the groups with waiting members of which some are placed, but too few, and how many are needed."""
        for key, state in self._states.items():
            members, min_members = self.members(key), 0 if state.group is None else state.group.min
            if members.count("placed") and members.current_count < min_members:
                yield key, min_members

    def reserve_room_for(self, key: GroupKey | None, now: float) -> None:
        old_owner, self.room_owner = self.room_owner, key
        for group_key in (old_owner, key):
            if group_key is not None and group_key in self._states:
                self._refresh(group_key, now)

    def counts(self) -> Mapping[str, int]:
        """Count the groups with waiting members: those in the queue, and those that are incomplete or rejected."""
        return {"queued": len(self.entries()), "incomplete": len(self._states) - len(self.entries())}

    def entries(self) -> set[str]:
        return {key.entry for key, state in self._states.items() if not state.message}

    def check(self) -> None:
        keys = {members.key for members in self.group_cache if members.count("waiting")}
        assert keys == self._states.keys(), "the groups with waiting members differ"
        for key, state in self._states.items():
            group, message = self._read(key)
            assert (state.group, state.message) == (group, message), f"group {key}: its state is not renewed"
            assert message or key not in self._changes, f"group {key}: it is in the queue, and a message says it is not"

    def _set_state(self, uid: str, membership: GroupMembership, member: Member) -> None:
        self.group_cache.put(uid, membership, member)
        self.queue.set_entry_of(uid, membership.key.entry if member.state == "waiting" else None)

    def _refresh(self, key: GroupKey, now: float) -> None:
        """Derive a group's state again, and add it to the queue or remove it."""
        members = self.group_cache.get(key)
        if members is None:
            self._backoffs.pop(key, None)
        else:
            members.set_pod_group_min(self.group_cache.pod_groups.get(key).min)
        if members is None or not members.count("waiting"):
            if self._states.pop(key, None) is not None:
                self._changes.drop(key)
                self.queue.delete(key.entry)
            return
        members.record_start()
        state = self._states.setdefault(key, WaitingGroup(now))
        was_in_queue = not state.message
        group, state.message = self._read(key)
        state.group = group
        if was_in_queue == bool(state.message):
            state.since = now
        if group is None or state.message:
            self.queue.delete(key.entry)
            self._changes.change(key, now)
            return
        self._changes.drop(key)
        lowest_priority, state.creation = members.lowest_rank
        state.priority = lowest_priority if group.priority is None else group.priority
        state.is_urgent = members.is_short(group.min) or self.room_owner == key
        if was_in_queue and self.queue.is_in_flight(key.entry):
            state.is_dirty = True
        else:
            self._enqueue(key, state, now)

    def _read(self, key: GroupKey) -> tuple[Group | None, str]:
        """Return a group, None if it is rejected, and why it is not in the queue; empty if it is."""
        members = self.members(key)
        group = read_group(key, self.group_cache.pod_groups.get(key), members.requests)
        if isinstance(group, Refused):
            return None, group.reason
        if members.refusal:
            return group, members.refusal
        owners = members.next_owners
        is_complete = not members.shortage(owners, group.min) or members.count_for(owners, "waiting") >= group.min
        return group, "" if is_complete else incomplete(members, group.min)

    def _enqueue(self, key: GroupKey, state: WaitingGroup, now: float, backoff_s: float = 0.0) -> None:
        state.is_dirty = False
        rank, is_urgent = (state.priority, state.creation), state.is_urgent
        self.queue.add(key.entry, *rank, now, is_urgent=is_urgent, backoff_s=backoff_s, since=state.since)
