"""Compare the members of a group: what they have in common, and how they differ. Pure."""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence

import msgspec

from scheduler.cache.node_columns import LINE_COUNT, LINES, MBPS, VFS
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.selection.affinity import AffinityInfo, Term

# The well-known label of a node's host name, mostly unique per node.
HOSTNAME = "kubernetes.io/hostname"


def as_member(pod_info: PodInfo, priority: int, runs_s: int | None) -> PodInfo:
    """Return a member with the group's priority and run time in place of its own."""
    if pod_info.priority == priority and pod_info.runs_s == runs_s:
        return pod_info
    return msgspec.structs.replace(pod_info, group_priority=priority, runs_s=runs_s)


# What a spare member's uid has after that of the member whose copy it is.
_SPARE = "-spare-"


def spare_members(member: PodInfo, count: int) -> list[PodInfo]:
    """Return copies of a member for which room is kept."""
    return [_spare(member, f"{_SPARE}{number}") for number in range(count)]


def _spare(member: PodInfo, end: str) -> PodInfo:
    metadata = member.pod.metadata
    own = msgspec.structs.replace(metadata, uid=metadata.uid + end, name=metadata.name + end)
    # Nobody makes volumes for it.
    return msgspec.structs.replace(member, pod=msgspec.structs.replace(member.pod, metadata=own), volumes=())


def is_spare(uid: str) -> bool:
    return _SPARE in uid


def alike(pod_info: PodInfo) -> Hashable:
    """Return a key; if a member does not fit, no member with the same key does."""
    return pod_info.shape, pod_info.affinity_info, pod_info.spread, pod_info.volumes


def distinct(members: Sequence[PodInfo]) -> Iterator[PodInfo]:
    """Yield one member of each kind."""
    yield from {alike(member): member for member in members}.values()


def apart_by_host(members: Sequence[PodInfo]) -> bool:
    """Return whether no two of these members may share a node, by a rule that they all have."""
    return HOSTNAME in _common_labels(members, lambda info: info.required_anti_affinity)


def together_by(members: Sequence[PodInfo]) -> str:
    """Return a label whose value all of these members must share, by a rule that they all have; empty if there is
    none.
    """
    return next(_common_labels(members, lambda info: info.required_affinity), "")


def _common_labels(members: Sequence[PodInfo], terms_of: Callable[[AffinityInfo], Collection[Term]]) -> Iterator[str]:
    """Yield the labels of the terms that all of these members have and that select all of them."""
    kinds = list({member.affinity_info: member for member in members})
    for term in terms_of(kinds[0]):
        if all(term in terms_of(info) and _selects(term, info) for info in kinds):
            yield term.key


def _selects(term: Term, affinity_info: AffinityInfo) -> bool:
    return affinity_info.namespace in term.scope.namespaces and term.scope.selector.selects(affinity_info.labels)


def reads_other_nodes(pod_info: PodInfo) -> bool:
    """Return whether pods on other nodes restrict where a member may be."""
    anti_affinity = any(term.key != HOSTNAME for term in pod_info.affinity_info.required_anti_affinity)
    return anti_affinity or needs_order(pod_info)


def needs_order(pod_info: PodInfo) -> bool:
    """Return whether a member's possible places depend on which others are placed already, not only on their number."""
    return bool(pod_info.affinity_info.required_affinity) or any(constraint.hard for constraint in pod_info.spread)


def by_shape(members: Sequence[PodInfo]) -> list[PodInfo]:
    return list({member.shape: member for member in members}.values())


def by_size(members: Sequence[PodInfo]) -> list[PodInfo]:
    """Return the members with the largest first, and equal ones next to each other.

    Members with required affinity come after those without, which may be the pods that they require.
    """
    first: dict[Hashable, int] = {}
    for number, pod_info in enumerate(members):
        first.setdefault(alike(pod_info), number)

    def place(member: PodInfo) -> tuple[bool, tuple[int, ...], int]:
        has_affinity = bool(member.affinity_info.required_affinity)
        return has_affinity, tuple(-amount for amount in _size(member)), first[alike(member)]

    return sorted(members, key=place)


def _size(pod_info: PodInfo) -> tuple[int, int, int, int]:
    rate = sum(interface.min_tx_rate for interface in pod_info.interfaces)
    return len(pod_info.interfaces), rate, pod_info.resources.get("cpu", 0), pod_info.resources.get("memory", 0)


def needs(pod_info: PodInfo) -> list[int]:
    amounts = [0] * LINE_COUNT
    for name, amount in pod_info.resources.items():
        if name in LINES:
            amounts[LINES[name]] = amount
    amounts[LINES["pods"]] = 1
    amounts[VFS] = len(pod_info.interfaces)
    amounts[MBPS] = sum(interface.min_tx_rate for interface in pod_info.interfaces)
    return amounts
