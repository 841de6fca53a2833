"""What a group asks for: read from its PodGroup and its waiting members' annotations, whatever the order of events.

The APIs of PodGroups are optional: while one is not served, or this account may not read it, it has no PodGroups.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mooring import names
from mooring.annotations.group import GroupRequest, Rails, Slice, difference, roles_conflict, slices_conflict
from mooring.kube.events import Change, Changed, Identity, Unreadable
from scheduler.cache.counters import shift
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

# Maximum number of different requests in a group: all nodes are evaluated for each. Labels do not count.
MOST_SHAPES = 64
AnyPodGroup = PodGroup | CoschedulingPodGroup
# Where each kind is listed; the first path that is served counts.
PATHS: Mapping[type[AnyPodGroup], tuple[str, ...]] = {
    PodGroup: tuple(f"/apis/scheduling.k8s.io/{version}/podgroups" for version in CONDITION_TYPES),
    CoschedulingPodGroup: ("/apis/scheduling.x-k8s.io/v1alpha1/podgroups",),
}
_NAMINGS: Mapping[type[AnyPodGroup], Naming] = {PodGroup: "PodGroup", CoschedulingPodGroup: "coscheduling"}
_APIS: Mapping[Naming, str] = {"PodGroup": "scheduling.k8s.io", "coscheduling": "scheduling.x-k8s.io"}
# A PodGroup's policy, why it is not supported, or None while there is no PodGroup.
PolicyOrRefusal = GroupPolicy | Refused | None


class PodGroupEntry(NamedTuple):
    """A PodGroup with its policy; only the item is None if it cannot be read.

    ``is_whole``: the group may only be disrupted as a whole. An unreadable PodGroup could say so.
    """

    policy: PolicyOrRefusal = None
    item: AnyPodGroup | None = None
    is_whole: bool = False

    @property
    def priority(self) -> int | None:
        return self.policy.priority if isinstance(self.policy, GroupPolicy) else None


_NO_POD_GROUP = PodGroupEntry()


class PodGroups:
    """The PodGroups of both APIs, by the keys of their groups."""

    def __init__(self) -> None:
        self._entries: dict[GroupKey, PodGroupEntry] = {}
        # How many PodGroups have each priority.
        self._priorities = Counter[int]()

    def get(self, key: GroupKey) -> PodGroupEntry:
        return self._entries.get(key, _NO_POD_GROUP)

    def has_below(self, priority: int) -> bool:
        """Return whether any PodGroup has a lower priority than this."""
        return any(group_priority < priority for group_priority in self._priorities)

    @staticmethod
    def key_of(kind: type[AnyPodGroup], identity: Identity) -> GroupKey:
        return GroupKey(_NAMINGS[kind], identity.namespace, identity.name)

    def take(self, kind: type[AnyPodGroup], event: Change[AnyPodGroup]) -> None:
        """Apply a watch event."""
        key = self.key_of(kind, event.identity)
        if (priority := self.get(key).priority) is not None:
            shift(self._priorities, priority, -1)
        match event:
            case Changed(_, item):
                entry = self._entries[key] = PodGroupEntry(_read(item), item, disrupted_as_a_whole(item))
                if entry.priority is not None:
                    shift(self._priorities, entry.priority, 1)
            case Unreadable(_, why):
                self._entries[key] = PodGroupEntry(Refused(f"its PodGroup cannot be read: {why}"), is_whole=True)
            case _:
                self._entries.pop(key, None)

    def lost(self, kind: type[AnyPodGroup], identities: Iterable[Identity]) -> list[Identity]:
        """Return the PodGroups of a kind that are not in a list of all of them."""
        keys = {self.key_of(kind, identity) for identity in identities}
        lost_keys = sorted(key for key in self._entries if key.naming == _NAMINGS[kind] and key not in keys)
        return [Identity(key.name, key.namespace) for key in lost_keys]


def _read(pod_group: AnyPodGroup) -> PolicyOrRefusal:
    try:
        return read_pod_group(pod_group)
    except ValueError as fault:
        return Refused(f"its PodGroup is not supported: {fault}")


@dataclass(frozen=True, slots=True)
class Group:
    """A set of pods that start together or not at all.

    At least ``min`` of them start, all on nodes with one value of the label ``within``, if that is not empty. If
    possible, they are on nodes with one value of the first of the labels ``prefer`` (from narrow to wide). ``priority``
    is None if that of the members counts. Room for ``spares`` more members is kept. Each of the ``slices``, from wide
    to narrow, is in one domain of its label. Each of the ``roles`` has at least so many members at the start.
    """

    key: GroupKey
    min: int
    within: str = ""
    prefer: tuple[str, ...] = ()
    rails: Rails | None = None
    priority: int | None = None
    spares: int = 0
    slices: tuple[Slice, ...] = ()
    roles: tuple[tuple[str, int], ...] = ()


def read_group(key: GroupKey, policy: PolicyOrRefusal, requests: Collection[GroupRequest]) -> Group | Refused:
    """Return a group, or why its members are not scheduled; ``requests`` are the waiting members' annotations."""
    if isinstance(policy, Refused):
        return policy
    if policy is None and key.has_pod_group:
        # The other API may have a PodGroup with this name.
        return Refused(f"its PodGroup ({_APIS[key.naming]}) does not exist, or the API server does not serve that API")
    if len(requests) > 1:
        return Refused(f"waiting members differ in annotation {names.GROUP!r}.{difference(requests)}")
    request = next(iter(requests), GroupRequest())
    if policy is not None and (contradiction := _contradiction(policy, request)):
        return Refused(f"annotation {names.GROUP!r}.{contradiction}")
    policy = policy or GroupPolicy(request.least or 1, request.within or "")
    return Group(
        key,
        policy.min,
        policy.within,
        request.prefer,
        request.rails,
        policy.priority,
        request.spares or 0,
        request.slices,
        request.roles,
    )


def _contradiction(policy: GroupPolicy, request: GroupRequest) -> str:
    """Return how an annotation contradicts its PodGroup; empty if it does not."""
    for field, value, group_value in (
        ("min", request.min, policy.min),
        ("within", request.within, policy.within or None),
        ("disruption", request.disruption, "group" if policy.is_whole else "pod"),
    ):
        if value is not None and value != group_value:
            says = "does not set it" if group_value is None else f"sets {group_value!r}"
            return f"{field}: {value!r} contradicts its PodGroup, which {says}"
    if rule := slices_conflict(request.slices, policy.min, policy.within, request.spares or 0):
        return f"slices: {rule}"
    rule = roles_conflict(request, policy.min)
    return f"roles: {rule}" if rule else ""
