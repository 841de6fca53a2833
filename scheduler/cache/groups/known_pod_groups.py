"""The PodGroups of both APIs, as received from the API server. Pure.

Their APIs are optional: while one is not served, or this account may not read it, it has no PodGroups.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from mooring.kube.events import Change, Changed, Identity, Removed, Unreadable
from scheduler.cache.groups.sources import Known
from scheduler.kube.group_membership import GroupKey, Naming
from scheduler.kube.pod_groups import (
    CONDITION_TYPES,
    CoschedulingPodGroup,
    GroupPolicy,
    PodGroup,
    disrupted_as_a_whole,
    read_pod_group,
)
from scheduler.kube.refused import Refused

AnyPodGroup = PodGroup | CoschedulingPodGroup
# Where each kind is listed; the first path that is served counts.
PATHS: Mapping[type[AnyPodGroup], tuple[str, ...]] = {
    PodGroup: tuple(f"/apis/scheduling.k8s.io/{version}/podgroups" for version in CONDITION_TYPES),
    CoschedulingPodGroup: ("/apis/scheduling.x-k8s.io/v1alpha1/podgroups",),
}
_NAMING: Mapping[type[AnyPodGroup], Naming] = {PodGroup: "PodGroup", CoschedulingPodGroup: "coscheduling"}


class KnownPodGroups:
    """The specification of each PodGroup, by the key of its group."""

    def __init__(self) -> None:
        self._policies: dict[GroupKey, Known] = {}
        self._objects: dict[GroupKey, AnyPodGroup] = {}
        # The groups that may only be disrupted as a whole. This includes unreadable PodGroups, which could say so.
        self.whole_groups: set[GroupKey] = set()
        # How many PodGroups have each priority.
        self._priorities = Counter[int]()

    @property
    def has_any(self) -> bool:
        return bool(self._policies)

    def of(self, key: GroupKey) -> Known:
        """Return a group's PodGroup policy, why it is not supported, or None while there is no PodGroup."""
        return self._policies.get(key)

    def priority(self, key: GroupKey) -> int | None:
        policy = self._policies.get(key)
        return policy.priority if isinstance(policy, GroupPolicy) else None

    @property
    def lowest_priority(self) -> int | None:
        return min(self._priorities, default=None)

    def pod_group(self, key: GroupKey) -> AnyPodGroup | None:
        return self._objects.get(key)

    @staticmethod
    def key_of(kind: type[AnyPodGroup], identity: Identity) -> GroupKey:
        return GroupKey(_NAMING[kind], identity.namespace, identity.name)

    def take(self, kind: type[AnyPodGroup], event: Change[AnyPodGroup]) -> GroupKey | None:
        """Apply a watch event; return the group if something about it has changed."""
        key = self.key_of(kind, event.identity)
        old_policy = self._policies.get(key)
        match event:
            case Changed(_, item):
                self._put(key, item, _read(item))
            case Unreadable(_, why):
                self._put(key, None, Refused(f"its PodGroup cannot be read: {why}"))
            case Removed():
                self._put(key, None, None)
        return key if self._policies.get(key) != old_policy else None

    def keep(self, kind: type[AnyPodGroup], identities: Iterable[Identity]) -> list[GroupKey]:
        """Apply a list of all PodGroups of a kind; return the groups that have lost theirs."""
        keys = {self.key_of(kind, identity) for identity in identities}
        removals = sorted(key for key in self._policies if key.naming == _NAMING[kind] and key not in keys)
        for key in removals:
            self._put(key, None, None)
        return removals

    def _put(self, key: GroupKey, item: AnyPodGroup | None, policy: Known) -> None:
        """Store a group's PodGroup, None if it is unreadable or deleted, and its policy."""
        for change, known in ((-1, self._policies.pop(key, None)), (1, policy)):
            if isinstance(known, GroupPolicy) and known.priority is not None:
                self._priorities[known.priority] += change
        self._priorities = +self._priorities
        self._objects.pop(key, None)
        if policy is not None:
            self._policies[key] = policy
        if item is not None:
            self._objects[key] = item
        if disrupted_as_a_whole(item) if item is not None else policy is not None:
            self.whole_groups.add(key)
        else:
            self.whole_groups.discard(key)


def _read(pod_group: AnyPodGroup) -> Known:
    try:
        return read_pod_group(pod_group)
    except ValueError as unsupported:
        return Refused(f"its PodGroup is not supported: {unsupported}")
