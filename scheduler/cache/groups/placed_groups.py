"""The groups of assigned pods, as preemption reads them. Pure."""

from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import NamedTuple

from scheduler.cache.groups.groups_by_pod import GroupsByPod
from scheduler.cache.groups.known_pod_groups import KnownPodGroups
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.pod_groups import GroupPolicy


class PlacedMembers(NamedTuple):
    """A group's members that have a node; ``spare`` of ``uids`` may be preempted one by one, more only with all.

    ``leaving`` are further members, which are being deleted anyway.
    """

    uids: list[str]
    spare: int
    leaving: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PlacedGroups:
    """The groups of pods that have a node, derived from the members and the PodGroups; it stores nothing itself.

    ``removals`` are the uids of pods whose deletion or eviction is ordered and not received yet.
    """

    groups_by_pod: GroupsByPod
    known_pod_groups: KnownPodGroups
    removals: Set[str] = frozenset()

    @property
    def any_known(self) -> bool:
        """Return whether there is any group: without groups every pod is a victim by itself, with its own priority."""
        return self.known_pod_groups.has_any or next(iter(self.groups_by_pod), None) is not None

    def group_of(self, uid: str) -> GroupKey | None:
        """Return the group of a placed pod, unless its PodGroup allows each member to be preempted; None for any other
        pod.
        """
        membership = self.groups_by_pod.of(uid)
        if membership is None or self.groups_by_pod.standing(uid) != "placed":
            return None
        key = membership.key
        return key if not key.has_pod_group or self.known_pod_groups.get(key).is_whole else None

    def members(self, key: GroupKey) -> PlacedMembers:
        """Return the placed members, and how many of them may be preempted one by one.

        For a PodGroup, its disruptionMode decides. In a group by annotation, the members beyond ``min`` may be, and all
        if each member says so. Placed members may differ: then the largest ``min`` counts. If not even ``min`` would
        stay, all are preempted together.
        """
        placed = self.placed(key)
        staying = [uid for uid in placed if uid not in self.removals]
        uids = staying or placed
        if key.has_pod_group:
            spare = 0 if self.known_pod_groups.get(key).is_whole else len(uids)
        else:
            min_members = self._annotated_min(uids)
            spare = max(len(staying) - min_members, 0) if min_members > 1 else len(uids)
            has_roles = any((membership := self.groups_by_pod.of(uid)) and membership.asked.roles for uid in uids)
            spare = 0 if has_roles and min_members > 1 else spare
        return PlacedMembers(uids, spare, frozenset(placed).difference(uids))

    def whole_min(self, key: GroupKey) -> int:
        """Return how many members a group needs if it is disrupted as a whole; 0 for another group, or if that is
        unknown.
        """
        if not key.has_pod_group:
            min_members = self._annotated_min(self.placed(key))
            return min_members if min_members > 1 else 0
        policy = self.known_pod_groups.of(key) if self.known_pod_groups.get(key).is_whole else None
        return policy.min if isinstance(policy, GroupPolicy) else 0

    def _annotated_min(self, uids: list[str]) -> int:
        """Return the largest min of members by annotation; 0 if all allow each of them to be preempted."""
        asked = {membership.asked for uid in uids if (membership := self.groups_by_pod.of(uid)) is not None}
        return 0 if all(one.disruption == "pod" for one in asked) else max(one.least or 1 for one in asked)

    def can_spare(self, uids: Iterable[str]) -> bool:
        """Return whether these pods may be preempted together without others of their groups."""
        by_group = dict[GroupKey, set[str]]()
        for uid in uids:
            if (key := self.group_of(uid)) is not None:
                by_group.setdefault(key, set()).add(uid)
        groups = ((self.members(key), chosen) for key, chosen in by_group.items())
        return all(len(chosen - members.leaving) <= members.spare for members, chosen in groups)

    def placed(self, key: GroupKey) -> list[str]:
        members = self.groups_by_pod.get(key)
        return members.of("placed") if members is not None else []

    def priority_as_victim(self, uid: str) -> int | None:
        """Return the priority of a pod's PodGroup; None if it has none."""
        if not self.known_pod_groups.has_any:
            return None
        membership = self.groups_by_pod.of(uid)
        return self.known_pod_groups.get(membership.key).priority if membership is not None else None
