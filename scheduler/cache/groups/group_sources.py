"""What a group asks for: read from its PodGroup and its waiting members' annotations, whatever the order of events.

While an API of PodGroups is not served, or this account may not read it, it has no PodGroups.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from mooring import names
from mooring.annotations.group import (
    MOST_MEMBERS,
    GroupRequest,
    Rails,
    Slice,
    difference,
    roles_conflict,
    slices_conflict,
)
from mooring.kube.events import Change, Changed, Identity, Unreadable
from scheduler.cache.counters import shift
from scheduler.kube.group_membership import GroupKey, Naming
from scheduler.kube.outcomes import Refused
from scheduler.kube.workload_objects import AnyPodGroup, CoschedulingPodGroup, PodGroup, PodGroupSpec, SchedulingPolicy

# The disruption modes of the two versions.
_SINGLE, _WHOLE = frozenset({"Pod", "single"}), frozenset({"PodGroup", "all"})


# Maximum number of different requests in a group: all nodes are evaluated for each. Labels do not count.
MOST_SHAPES = 64
_NAMINGS: Mapping[type[AnyPodGroup], Naming] = {PodGroup: "PodGroup", CoschedulingPodGroup: "coscheduling"}
_APIS: Mapping[Naming, str] = {"PodGroup": "scheduling.k8s.io", "coscheduling": "scheduling.x-k8s.io"}


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


class PodGroupEntry(NamedTuple):
    """A PodGroup and what it says of the group, or why that is not supported; both are None if there is no PodGroup.

    ``is_whole``: the group may only be disrupted as a whole. An unreadable PodGroup, without ``item``, could say so.
    """

    group: Group | Refused | None = None
    item: AnyPodGroup | None = None
    is_whole: bool = False

    @property
    def min(self) -> int:
        """Return 0 if it is unknown."""
        return self.group.min if isinstance(self.group, Group) else 0

    @property
    def priority(self) -> int | None:
        return self.group.priority if isinstance(self.group, Group) else None


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
                try:
                    group: Group | Refused = read_pod_group(key, item)
                except ValueError as fault:
                    group = Refused(f"its PodGroup is not supported: {fault}")
                self._entries[key] = PodGroupEntry(group, item, disrupted_as_a_whole(item))
            case Unreadable(_, why):
                self._entries[key] = PodGroupEntry(Refused(f"its PodGroup cannot be read: {why}"), is_whole=True)
            case _:
                self._entries.pop(key, None)
        if (priority := self.get(key).priority) is not None:
            shift(self._priorities, priority, 1)

    def absent(self, kind: type[AnyPodGroup], identities: Iterable[Identity]) -> list[Identity]:
        """Return the PodGroups of a kind that are not in a list of all of them."""
        keys = {self.key_of(kind, identity) for identity in identities}
        absent_keys = sorted(key for key in self._entries if key.naming == _NAMINGS[kind] and key not in keys)
        return [Identity(key.name, key.namespace) for key in absent_keys]


def read_group(key: GroupKey, entry: PodGroupEntry, requests: Collection[GroupRequest]) -> Group | Refused:
    """Return a group, or why its members are not scheduled; ``requests`` are the waiting members' annotations."""
    group = entry.group
    if isinstance(group, Refused):
        return group
    if group is None and key.has_pod_group:
        # The other API may have a PodGroup with this name.
        return Refused(f"its PodGroup ({_APIS[key.naming]}) does not exist, or the API server does not serve that API")
    if len(requests) > 1:
        return Refused(f"waiting members differ in annotation {names.GROUP!r}.{difference(requests)}")
    request = next(iter(requests), GroupRequest())
    if group is not None and (contradiction := _contradiction(group, request, is_whole=entry.is_whole)):
        return Refused(f"annotation {names.GROUP!r}.{contradiction}")
    return replace(
        group or Group(key, request.least or 1, request.within or ""),
        prefer=request.prefer,
        rails=request.rails,
        spares=request.spares or 0,
        slices=request.slices,
        roles=request.roles,
    )


def _contradiction(group: Group, request: GroupRequest, *, is_whole: bool) -> str:
    """Return how an annotation contradicts its PodGroup; empty if it does not."""
    for field, value, group_value in (
        ("min", request.min, group.min),
        ("within", request.within, group.within or None),
        ("disruption", request.disruption, "group" if is_whole else "pod"),
    ):
        if value is not None and value != group_value:
            says = "does not set it" if group_value is None else f"sets {group_value!r}"
            return f"{field}: {value!r} contradicts its PodGroup, which {says}"
    if rule := slices_conflict(request.slices, group.min, group.within, request.spares or 0):
        return f"slices: {rule}"
    rule = roles_conflict(request, group.min)
    return f"roles: {rule}" if rule else ""


def read_pod_group(key: GroupKey, pod_group: AnyPodGroup) -> Group:
    """Return what a PodGroup says of its group; raise ValueError with the unsupported field."""
    if isinstance(pod_group, CoschedulingPodGroup):
        return Group(key, _checked_count("minMember", max(pod_group.spec.min_member, 1)))
    spec = pod_group.spec
    if spec.parent_composite_pod_group_name:
        parent = spec.parent_composite_pod_group_name
        raise ValueError(f"its parentCompositePodGroupName {parent!r} (CompositePodGroup) is not supported")
    if spec.resource_claims:
        raise ValueError("its resourceClaims (dynamic resource allocation) are not supported")
    topology = spec.scheduling_constraints.topology if spec.scheduling_constraints else None
    if topology and (len(topology) > 1 or not topology[0].key):
        raise ValueError("schedulingConstraints.topology must name one key")
    if unknown_modes := sorted(_disruption_modes(spec) - _SINGLE - _WHOLE):
        raise ValueError(f"disruptionMode {unknown_modes[0]!r} is not known")
    within = topology[0].key if topology else ""
    return Group(key, _min_count(spec.scheduling_policy), within, priority=spec.priority)


def disrupted_as_a_whole(pod_group: AnyPodGroup) -> bool:
    """Return whether the members may only be disrupted all together; True also for an unknown mode."""
    return isinstance(pod_group, PodGroup) and bool(_disruption_modes(pod_group.spec) - _SINGLE)


def _disruption_modes(spec: PodGroupSpec) -> set[str]:
    mode = spec.disruption_mode
    return {mode} if isinstance(mode, str) else {name for name, value in (mode or {}).items() if value is not None}


def _min_count(policy: SchedulingPolicy | None) -> int:
    if policy is None or (policy.gang is None) == (policy.basic is None):
        raise ValueError("schedulingPolicy must be either gang or basic")
    return _checked_count("minCount", policy.gang.min_count) if policy.gang is not None else 1


def _checked_count(name: str, count: int) -> int:
    if not 1 <= count <= MOST_MEMBERS:
        raise ValueError(f"{name} {count} is not from 1 to {MOST_MEMBERS}")
    return count
