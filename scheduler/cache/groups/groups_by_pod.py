"""The pods of each group by uid. Pure.

The event handlers and the decisions set their states; `GroupsByPod.check` compares the placed members with the cache.
"""

from collections.abc import Callable, Iterator, Set

from scheduler.cache.groups.group_members import Members
from scheduler.cache.groups.start import MemberState, Standing
from scheduler.kube.group_membership import GroupKey, GroupMembership

_ON_A_NODE = ("placed", "leaving")


class GroupsByPod:
    """All groups that have a pod."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, Members] = {}
        self._of: dict[str, GroupMembership] = {}
        # How many pods have succeeded according to each Job's status, by Job uid; without zeros.
        self._job_successes: dict[str, int] = {}

    def __iter__(self) -> Iterator[Members]:
        yield from self._groups.values()

    def get(self, key: GroupKey) -> Members | None:
        return self._groups.get(key)

    def of(self, uid: str) -> GroupMembership | None:
        """Return the group of a pod; None for a pod without a group."""
        return self._of.get(uid)

    def standing(self, uid: str) -> Standing | None:
        membership = self._of.get(uid)
        return self._groups[membership.key].states[uid].standing if membership is not None else None

    def put(self, uid: str, membership: GroupMembership, state: MemberState) -> None:
        """Record a pod's state in its group, in place of its state in any group."""
        previous = self._of.get(uid)
        if previous is not None and previous.key != membership.key:
            self.drop(uid)
        self._of[uid] = membership
        members = self._groups.get(membership.key)
        if members is None:
            members = self._groups[membership.key] = Members(membership.key, membership.title, self._job_successes)
        members.put(uid, state, membership)

    def drop(self, uid: str) -> GroupKey | None:
        """Delete a pod; return the group that it was in."""
        membership = self._of.pop(uid, None)
        if membership is None:
            return None
        members = self._groups[membership.key]
        members.drop(uid)
        if not members.states:
            del self._groups[membership.key]
        return membership.key

    def job_changed(self, uid: str, succeeded: int) -> list[GroupKey]:
        """Record how many pods of a Job have succeeded, 0 for a deleted Job; return the groups that changed."""
        if not uid or self._job_successes.get(uid, 0) == succeeded:
            return []
        groups = [members for members in self._groups.values() if members.has_owner(uid)]
        for members in groups:
            members.judge()
        self._job_successes[uid] = succeeded
        if not succeeded:
            del self._job_successes[uid]
        for members in groups:
            members.end_start()
        return [members.key for members in groups]

    def keep_jobs(self, uids: Set[str]) -> list[GroupKey]:
        """Drop all Jobs except these; return the groups that changed."""
        return [key for uid in self._job_successes.keys() - uids for key in self.job_changed(uid, 0)]

    def uids(self, *standings: Standing) -> list[str]:
        return [uid for members in self._groups.values() for uid in members.of(*standings)]

    def check(self, is_assigned: Callable[[str], bool]) -> None:
        """Raise AssertionError unless the placed members are exactly those in the cache."""
        for members in self._groups.values():
            assert members.states, f"group {members.key} is kept without a pod"
            for uid, state in members.states.items():
                assert is_assigned(uid) == (state.standing in _ON_A_NODE), f"{uid} is {state.standing}"
                assert self._of[uid].key == members.key
            members.check()
