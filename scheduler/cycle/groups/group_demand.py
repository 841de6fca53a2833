"""The input of a decision about a group: what it needs, and what its members have in common. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.node_columns import LINE_COUNT, LINES, MBPS, VFS
from scheduler.cycle.reserved_room import ReservedRoom
from scheduler.kube.group import MOST_SHAPES, Group
from scheduler.kube.pod_info import PodInfo, without_identity
from scheduler.kube.selection.affinity import AffinityInfo, Term

# The well-known label of a node's host name, mostly unique per node.
HOSTNAME = "kubernetes.io/hostname"
# What a spare member's uid has after that of the member whose copy it is.
_SPARE = "-spare-"


@dataclass(frozen=True)
class GroupDemand:
    """A group and its waiting ``members`` in order, of which ``needed_count`` must be placed.

    ``since`` is the number of the event after which the decision began. The last ``spares`` of the members only reserve
    room; the group does not start without the ``needed_spares``, which ``needed_count`` includes. ``ranks`` are those
    of the waiting and placed members, by uid, if the group has slices.
    """

    group: Group
    members: Sequence[PodInfo]
    needed_count: int
    priority: int
    placed_pods: Sequence[AssignedPod] = ()
    since: int = 0
    spares: int = 0
    needed_spares: int = 0
    ranks: Mapping[str, int] = field(default_factory=dict)
    # Of many shapes: the members as sums read them, without what may differ, so that sums show no less room.
    similar_members: list[PodInfo] = field(default_factory=list, compare=False)

    @cached_property
    def has_many_shapes(self) -> bool:
        """Whether the members have more shapes than all nodes are evaluated for."""
        return len(by_shape(self.members)) > MOST_SHAPES

    def add_similar(self, member: PodInfo) -> None:
        self.similar_members.append(without_identity(member))

    @property
    def summed_members(self) -> Sequence[PodInfo]:
        return self.similar_members or self.members

    @cached_property
    def shapes(self) -> list[PodInfo]:
        return by_shape(self.summed_members)

    @cached_property
    def shape_counts(self) -> list[int]:
        """How many members each of the ``shapes`` has."""
        counts = Counter(member.shape for member in self.summed_members)
        return [counts[member.shape] for member in self.shapes]

    @cached_property
    def kinds(self) -> list[PodInfo]:
        """One member of each kind: members of one kind have equal rules."""
        return list({kind_of(member): member for member in self.members}.values())

    @cached_property
    def uids(self) -> frozenset[str]:
        return frozenset(member.uid for member in self.real_members)

    @cached_property
    def real_members(self) -> Sequence[PodInfo]:
        return self.members[: len(self.members) - self.spares] if self.spares else self.members

    def without_spares(self) -> "GroupDemand":
        needed_count = self.needed_count - self.needed_spares
        return replace(
            self, members=self.real_members, needed_count=needed_count, spares=0, needed_spares=0, similar_members=[]
        )

    @cached_property
    def _by_size(self) -> Sequence[PodInfo]:
        return by_size(self.real_members)

    def orders(self, needed_count: int) -> list[Sequence[PodInfo]]:
        """Return the members in each order in which to try them if this many must be placed."""
        if len(self.shapes) == 1 or self.group.slices:
            return [self.members]
        orders = [self._by_size, self.real_members]
        # Small members first: most of them fit.
        orders += [self._by_size[::-1]] if needed_count < len(self.members) else []
        spares = self.members[len(self.real_members) :]
        return [[*order, *spares] for order in orders] if spares else orders

    def rooms(self, reserved: ReservedRoom) -> tuple[AssignedPod, ...]:
        return tuple(filter(None, (reserved.room_of(member.uid) for member in self.members)))


def as_member(pod_info: PodInfo, priority: int, runs_s: int | None) -> PodInfo:
    """Return a member with the group's priority and run time in place of its own."""
    if pod_info.priority == priority and pod_info.runs_s == runs_s:
        return pod_info
    return msgspec.structs.replace(pod_info, group_priority=priority, runs_s=runs_s)


def spare_members(member: PodInfo, count: int) -> list[PodInfo]:
    """Return copies of a member for which room is kept."""
    spares, metadata = list[PodInfo](), member.pod.metadata
    for number in range(count):
        suffix = f"{_SPARE}{number}"
        metadata_of_spare = msgspec.structs.replace(metadata, uid=metadata.uid + suffix, name=metadata.name + suffix)
        pod = msgspec.structs.replace(member.pod, metadata=metadata_of_spare)
        # Nobody makes volumes for it.
        spares.append(msgspec.structs.replace(member, pod=pod, volumes=()))
    return spares


def is_spare(uid: str) -> bool:
    return _SPARE in uid


def kind_of(pod_info: PodInfo) -> Hashable:
    """Return a key; if a member does not fit, no member with the same key does."""
    return pod_info.shape, pod_info.affinity_info, pod_info.spread, pod_info.volumes


def by_shape(members: Sequence[PodInfo]) -> list[PodInfo]:
    return list({member.shape: member for member in members}.values())


def by_size(members: Sequence[PodInfo]) -> list[PodInfo]:
    """Return the members with the largest first, and equal ones next to each other.

    Members with required affinity come after those without, which may be the pods that they require.
    """
    first: dict[Hashable, int] = {}
    for number, pod_info in enumerate(members):
        first.setdefault(kind_of(pod_info), number)

    def sort_key(member: PodInfo) -> tuple[object, ...]:
        rate = sum(interface.min_tx_rate for interface in member.interfaces)
        cpu, memory = member.resources.get("cpu", 0), member.resources.get("memory", 0)
        has_affinity = bool(member.affinity_info.required_affinity)
        return has_affinity, -len(member.interfaces), -rate, -cpu, -memory, first[kind_of(member)]

    return sorted(members, key=sort_key)


def needs(pod_info: PodInfo) -> list[int]:
    """Return the amount that a member needs of the resource of each line of the node columns."""
    amounts = [0] * LINE_COUNT
    for name, amount in pod_info.resources.items():
        if name in LINES:
            amounts[LINES[name]] = amount
    amounts[LINES["pods"]] = 1
    amounts[VFS] = len(pod_info.interfaces)
    amounts[MBPS] = sum(interface.min_tx_rate for interface in pod_info.interfaces)
    return amounts


def are_apart_by_host(members: Sequence[PodInfo]) -> bool:
    """Return whether no two of these members may share a node, by a rule that they all have."""
    return HOSTNAME in _common_labels(members, lambda info: info.required_anti_affinity)


def common_domain_label(members: Sequence[PodInfo]) -> str:
    """Return a label whose value all of these members must share, by a rule that they all have; empty for none."""
    return next(_common_labels(members, lambda info: info.required_affinity), "")


def _common_labels(members: Sequence[PodInfo], terms_of: Callable[[AffinityInfo], Collection[Term]]) -> Iterator[str]:
    """Yield the labels of the terms that all of these members have and that select all of them."""
    infos = list({member.affinity_info: member for member in members})
    for term in terms_of(infos[0]):
        scope = term.scope
        if all(
            term in terms_of(info) and info.namespace in scope.namespaces and scope.selector.selects(info.labels)
            for info in infos
        ):
            yield term.key


def reads_other_nodes(pod_info: PodInfo) -> bool:
    """Return whether pods on other nodes restrict where a member may be."""
    anti_affinity = any(term.key != HOSTNAME for term in pod_info.affinity_info.required_anti_affinity)
    return anti_affinity or needs_order(pod_info)


def needs_order(pod_info: PodInfo) -> bool:
    """Return whether a member's possible places depend on which others are placed already, not only on their number."""
    return bool(pod_info.affinity_info.required_affinity) or any(constraint.hard for constraint in pod_info.spread)
