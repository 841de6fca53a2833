"""All groups in memory: their pods by uid, their PodGroups, and which members preemption may evict. Pure."""

from collections.abc import Callable, Iterable, Iterator, Set
from typing import NamedTuple

from scheduler.cache.groups.group_members import Member, Members, MemberState
from scheduler.cache.groups.group_sources import PodGroups
from scheduler.kube.group_membership import GroupKey, GroupMembership


class PlacedMembers(NamedTuple):
    """A group's members that have a node; ``spare`` of ``uids`` may be preempted one by one, more only with all.

    ``leaving`` are further members, which are being deleted anyway.
    """

    uids: list[str]
    spare: int
    leaving: frozenset[str] = frozenset()


class GroupCache:
    """The groups that have a pod, and the PodGroups.

    ``removals`` are the uids of pods whose deletion or eviction is ordered and not received yet.
    """

    def __init__(self, removals: Set[str] = frozenset()) -> None:
        self.pod_groups = PodGroups()
        self._groups: dict[GroupKey, Members] = {}
        self._memberships: dict[str, GroupMembership] = {}
        self._removals = removals
        # How many pods have succeeded according to each Job's status, by Job uid; without zeros.
        self._job_successes: dict[str, int] = {}

    def __iter__(self) -> Iterator[Members]:
        yield from self._groups.values()

    def get(self, key: GroupKey) -> Members | None:
        return self._groups.get(key)

    def of(self, uid: str) -> GroupMembership | None:
        """Return the group of a pod; None for a pod without a group."""
        return self._memberships.get(uid)

    def state(self, uid: str) -> MemberState | None:
        membership = self._memberships.get(uid)
        return self._groups[membership.key].pods[uid].state if membership is not None else None

    def uids(self, *states: MemberState) -> list[str]:
        return [uid for members in self._groups.values() for uid in members.of(*states)]

    def put(self, uid: str, membership: GroupMembership, member: Member) -> None:
        """Record a pod in its group, in place of its state in any group."""
        previous = self._memberships.get(uid)
        if previous is not None and previous.key != membership.key:
            self.drop(uid)
        self._memberships[uid] = membership
        members = self._groups.get(membership.key)
        if members is None:
            members = self._groups[membership.key] = Members(membership.key, membership.title, self._job_successes)
        members.put(uid, member, membership)

    def drop(self, uid: str) -> GroupKey | None:
        """Delete a pod; return the group that it was in."""
        membership = self._memberships.pop(uid, None)
        if membership is None:
            return None
        members = self._groups[membership.key]
        members.drop(uid)
        if not members.pods:
            del self._groups[membership.key]
        return membership.key

    def job_changed(self, uid: str, success_count: int) -> list[GroupKey]:
        """Record how many pods of a Job have succeeded, 0 for a deleted Job; return the groups that changed."""
        if not uid or self._job_successes.get(uid, 0) == success_count:
            return []
        groups = [members for members in self._groups.values() if members.has_owner(uid)]
        for members in groups:
            members.judge()
        self._job_successes[uid] = success_count
        if not success_count:
            del self._job_successes[uid]
        for members in groups:
            members.end_start()
        return [members.key for members in groups]

    def keep_jobs(self, uids: Set[str]) -> list[GroupKey]:
        """Drop all Jobs except these; return the groups that changed."""
        return [key for uid in self._job_successes.keys() - uids for key in self.job_changed(uid, 0)]

    @property
    def has_members(self) -> bool:
        """Whether any pod has a group: otherwise every pod is a victim by itself."""
        return bool(self._memberships)

    def placed(self, key: GroupKey) -> list[str]:
        members = self._groups.get(key)
        return members.of("placed") if members is not None else []

    def victim_group(self, uid: str) -> GroupKey | None:
        """Return the group of a placed pod; None if its PodGroup allows each member to be preempted."""
        membership = self._memberships.get(uid)
        if membership is None or self.state(uid) != "placed":
            return None
        key = membership.key
        return key if not key.has_pod_group or self.pod_groups.get(key).is_whole else None

    def placed_members(self, key: GroupKey) -> PlacedMembers:
        """Return the placed members, and how many of them may be preempted one by one.

        For a PodGroup, its disruptionMode decides. In a group by annotation, the members beyond the largest ``min``
        may be, and all if each member says so.
        """
        placed_uids = self.placed(key)
        kept_uids = [uid for uid in placed_uids if uid not in self._removals]
        uids = kept_uids or placed_uids
        if key.has_pod_group:
            spare = 0 if self.pod_groups.get(key).is_whole else len(uids)
        elif not (min_members := self._annotated_min(uids)):
            spare = len(uids)
        else:
            has_roles = any(self._memberships[uid].request.roles for uid in uids)
            spare = 0 if has_roles else max(len(kept_uids) - min_members, 0)
        return PlacedMembers(uids, spare, frozenset(placed_uids).difference(uids))

    def whole_min(self, key: GroupKey) -> int:
        """Return the min of a group that is disrupted as a whole; 0 for another group, or if it is unknown."""
        if not key.has_pod_group:
            return self._annotated_min(self.placed(key))
        entry = self.pod_groups.get(key)
        return entry.min if entry.is_whole else 0

    def _annotated_min(self, uids: list[str]) -> int:
        """Return the largest min of members by annotation; 0 if each of them may be preempted by itself."""
        requests = {self._memberships[uid].request for uid in uids}
        min_members = max((request.least or 1 for request in requests), default=1)
        return 0 if min_members == 1 or all(request.disruption == "pod" for request in requests) else min_members

    def can_spare(self, uids: Iterable[str]) -> bool:
        """Return whether these pods may be preempted together without others of their groups."""
        by_group = dict[GroupKey, set[str]]()
        for uid in uids:
            if (key := self.victim_group(uid)) is not None:
                by_group.setdefault(key, set()).add(uid)
        groups = ((self.placed_members(key), victim_uids) for key, victim_uids in by_group.items())
        return all(len(victim_uids - members.leaving) <= members.spare for members, victim_uids in groups)

    def priority_as_victim(self, uid: str) -> int | None:
        """Return the priority of a pod's PodGroup; None if it has none."""
        membership = self._memberships.get(uid)
        return self.pod_groups.get(membership.key).priority if membership is not None else None

    def check(self, is_assigned: Callable[[str], bool]) -> None:
        """Raise AssertionError unless the placed members are exactly those in the cache."""
        for members in self._groups.values():
            assert members.pods, f"group {members.key} is kept without a pod"
            for uid, member in members.pods.items():
                assert is_assigned(uid) == (member.state in ("placed", "leaving")), f"{uid} is {member.state}"
                assert self._memberships[uid].key == members.key
            members.check()
