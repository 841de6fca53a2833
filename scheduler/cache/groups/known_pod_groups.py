"""The PodGroups of both APIs, as received from the API server. Pure.

Their APIs are optional: while one is not served, or this account may not read it, it has no PodGroups.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mooring.kube.events import Change, Changed, Identity, Removed, Unreadable
from scheduler.cache.groups.sources import Known
from scheduler.kube.group_membership import GroupKey, Naming
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_groups import (
    CONDITION_TYPES,
    CoschedulingPodGroup,
    GroupPolicy,
    PodGroup,
    disrupted_as_a_whole,
    read_pod_group,
)

AnyPodGroup = PodGroup | CoschedulingPodGroup
# Where each kind is listed; the first path that is served counts.
PATHS: Mapping[type[AnyPodGroup], tuple[str, ...]] = {
    PodGroup: tuple(f"/apis/scheduling.k8s.io/{version}/podgroups" for version in CONDITION_TYPES),
    CoschedulingPodGroup: ("/apis/scheduling.x-k8s.io/v1alpha1/podgroups",),
}
_NAMING: Mapping[type[AnyPodGroup], Naming] = {PodGroup: "PodGroup", CoschedulingPodGroup: "coscheduling"}


class KnownPodGroup(NamedTuple):
    """A PodGroup with its policy; None if there is none, and only the item if it cannot be read.

    ``is_whole``: the group may only be disrupted as a whole. An unreadable PodGroup could say so.
    """

    policy: Known = None
    item: AnyPodGroup | None = None
    is_whole: bool = False

    @property
    def priority(self) -> int | None:
        return self.policy.priority if isinstance(self.policy, GroupPolicy) else None


_NONE = KnownPodGroup()


class KnownPodGroups:
    """The PodGroups by the keys of their groups."""

    def __init__(self) -> None:
        self._pod_groups: dict[GroupKey, KnownPodGroup] = {}
        # How many PodGroups have each priority.
        self._priorities = Counter[int]()

    @property
    def has_any(self) -> bool:
        return bool(self._pod_groups)

    def get(self, key: GroupKey) -> KnownPodGroup:
        return self._pod_groups.get(key, _NONE)

    def of(self, key: GroupKey) -> Known:
        """Return a group's PodGroup policy, why it is not supported, or None while there is no PodGroup."""
        return self.get(key).policy

    def has_below(self, priority: int) -> bool:
        """Return whether any PodGroup has a lower priority than this."""
        return any(other < priority for other in self._priorities)

    @staticmethod
    def key_of(kind: type[AnyPodGroup], identity: Identity) -> GroupKey:
        return GroupKey(_NAMING[kind], identity.namespace, identity.name)

    def take(self, kind: type[AnyPodGroup], event: Change[AnyPodGroup]) -> None:
        """Apply a watch event."""
        key = self.key_of(kind, event.identity)
        match event:
            case Changed(_, item):
                self._put(key, KnownPodGroup(_read(item), item, disrupted_as_a_whole(item)))
            case Unreadable(_, why):
                self._put(key, KnownPodGroup(Refused(f"its PodGroup cannot be read: {why}"), is_whole=True))
            case Removed():
                self._put(key, None)

    def _put(self, key: GroupKey, pod_group: KnownPodGroup | None) -> None:
        for change, one in ((-1, self._pod_groups.pop(key, None)), (1, pod_group)):
            if one is not None and one.priority is not None:
                self._priorities[one.priority] += change
        self._priorities = +self._priorities
        if pod_group is not None:
            self._pod_groups[key] = pod_group

    def missing(self, kind: type[AnyPodGroup], identities: Iterable[Identity]) -> list[Identity]:
        """Return the PodGroups of a kind that are not in a list of all of them."""
        keys = {self.key_of(kind, identity) for identity in identities}
        removals = sorted(key for key in self._pod_groups if key.naming == _NAMING[kind] and key not in keys)
        return [Identity(key.name, key.namespace) for key in removals]


def _read(pod_group: AnyPodGroup) -> Known:
    try:
        return read_pod_group(pod_group)
    except ValueError as unsupported:
        return Refused(f"its PodGroup is not supported: {unsupported}")
