"""What preemption asks about the groups of assigned pods. Pure."""

from dataclasses import dataclass

from scheduler.cache.groups.groups_by_pod import GroupsByPod
from scheduler.cache.groups.known_pod_groups import KnownPodGroups
from scheduler.kube.group_membership import GroupKey


@dataclass(frozen=True, slots=True)
class PlacedGroups:
    """The groups of pods that have a node, read from the members and the PodGroups; it keeps nothing itself."""

    groups_by_pod: GroupsByPod
    known_pod_groups: KnownPodGroups

    @property
    def any_known(self) -> bool:
        """Return whether there is any PodGroup: without one every pod is a victim by itself, of its own priority."""
        return self.known_pod_groups.has_any or bool(self.known_pod_groups.whole_groups)

    def is_whole(self, uid: str) -> bool:
        """Return whether a pod is a placed member of a group that may only be disrupted as a whole."""
        return self.whole_group_of(uid) is not None

    def whole_group_of(self, uid: str) -> GroupKey | None:
        """Return the group of a placed pod that may only be disrupted as a whole; None for any other pod."""
        if not self.known_pod_groups.whole_groups or self.groups_by_pod.standing(uid) != "placed":
            return None
        membership = self.groups_by_pod.of(uid)
        return (
            membership.key if membership is not None and membership.key in self.known_pod_groups.whole_groups else None
        )

    def placed(self, key: GroupKey) -> list[str]:
        """Return the uids of a group's placed members."""
        members = self.groups_by_pod.get(key)
        return members.of("placed") if members is not None else []

    def lowest_priority(self) -> int | None:
        """Return a priority that no PodGroup undercuts; None if none gives one."""
        return self.known_pod_groups.lowest_priority

    def priority_as_victim(self, uid: str) -> int | None:
        """Return the priority that a pod's PodGroup gives it; None if none does."""
        if not self.known_pod_groups.has_any:
            return None
        membership = self.groups_by_pod.of(uid)
        return self.known_pod_groups.priority(membership.key) if membership is not None else None
