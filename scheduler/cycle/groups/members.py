"""What the members of a group have in common, and how they differ. Pure."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

import msgspec

from mooring.annotations.request import PodRequest
from scheduler.cache.node_columns import LINE_COUNT, LINES, MBPS, VFS
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.selection.affinity import AffinityInfo, Term

# The well-known label of a node's host name: mostly no other node has the same.
HOSTNAME = "kubernetes.io/hostname"


def of_priority(pod_info: PodInfo, priority: int) -> PodInfo:
    """Return a member as it is decided about in a group of this priority, whatever its own is."""
    if pod_info.priority == priority:
        return pod_info
    return msgspec.structs.replace(pod_info, group_priority=priority)


def alike(pod_info: PodInfo) -> Hashable:
    """Return the key of the members of which none fits if one of them does not."""
    return pod_info.shape, pod_info.affinity_info, pod_info.spread, pod_info.volumes


def distinct(members: Sequence[PodInfo]) -> Iterator[PodInfo]:
    """Yield one member of each kind."""
    yield from {alike(member): member for member in members}.values()


def are_interchangeable(members: Sequence[PodInfo]) -> bool:
    """Return whether greedy order places as many of these as any other order does.

    So it is of equal members with one rule about each other at the most. Where they keep apart by a label, each of its
    domains takes one. Where they spread by one, a domain that takes another member leaves no less room in the others.
    Where they keep together by one, they are tried in each of its domains (`together_by`). Two rules can be at odds: a
    place that is as good as others by one of them can be worse by the other.
    """
    return len({alike(member) for member in members}) == 1 and len(_rules(members[0])) < 2


def apart_by(members: Sequence[PodInfo]) -> list[str]:
    """Return the labels of which no two of these may share a value, by rules that they all have."""
    kinds = list({one.affinity_info: one for one in members})
    return [
        term.key
        for term in kinds[0].required_anti_affinity
        if all(term in one.required_anti_affinity and _selects(term, one) for one in kinds)
    ]


def together_by(members: Sequence[PodInfo]) -> str:
    """Return a label that all of these must share, wherever the first of them is, by a rule of theirs; else empty."""
    kinds = list({one.affinity_info: one for one in members})
    return next(
        (
            term.key
            for term in kinds[0].required_affinity
            if all(term in one.required_affinity and _selects(term, one) for one in kinds)
        ),
        "",
    )


def _selects(term: Term, affinity_info: AffinityInfo) -> bool:
    return affinity_info.namespace in term.scope.namespaces and term.scope.selector.selects(affinity_info.labels)


def reads_other_nodes(pod_info: PodInfo) -> bool:
    """Return whether pods on other nodes decide where a member may be."""
    return bool(_rules(pod_info))


def _rules(pod_info: PodInfo) -> list[object]:
    """Return a member's rules about pods on other nodes."""
    affinity_info = pod_info.affinity_info
    apart = [term for term in affinity_info.required_anti_affinity if term.key != HOSTNAME]
    return [*affinity_info.required_affinity, *apart, *(one for one in pod_info.spread if one.hard)]


def needs_order(pod_info: PodInfo) -> bool:
    """Return whether where a member may be depends on which others are placed already, by more than their number."""
    return is_spread(pod_info) or bool(pod_info.affinity_info.required_affinity)


def is_spread(pod_info: PodInfo) -> bool:
    """Return whether a member has hard topology spread: then the order of equal members counts."""
    return any(one.hard for one in pod_info.spread)


def requests_of(members: Sequence[PodInfo]) -> Counter[PodRequest | None]:
    """Return how many members have each request."""
    counts = Counter(one.shape for one in members)
    found = Counter[PodRequest | None]()
    for one in by_shape(members):
        found[one.request] += counts[one.shape]
    return found


def by_shape(members: Sequence[PodInfo]) -> list[PodInfo]:
    """Return a member of each shape."""
    return list({member.shape: member for member in members}.values())


def by_size(members: Sequence[PodInfo]) -> list[PodInfo]:
    """Return members, those that take the most first, and equal ones one after another.

    Those that require others near them come after those that do not: these may be the others.
    """
    first: dict[Hashable, int] = {}
    for number, one in enumerate(members):
        first.setdefault(alike(one), number)

    def place(member: PodInfo) -> tuple[bool, tuple[int, ...], int]:
        needs_others = bool(member.affinity_info.required_affinity)
        return needs_others, tuple(-amount for amount in _size(member)), first[alike(member)]

    return sorted(members, key=place)


def _size(pod_info: PodInfo) -> tuple[int, int, int, int]:
    """Return how much a member takes, VFs first."""
    rate = sum(interface.min_tx_rate for interface in pod_info.interfaces)
    return len(pod_info.interfaces), rate, pod_info.resources.get("cpu", 0), pod_info.resources.get("memory", 0)


def needs(pod_info: PodInfo) -> list[int]:
    """Return what a pod takes of each line of the columns."""
    taken = [0] * LINE_COUNT
    for name, amount in pod_info.resources.items():
        if name in LINES:
            taken[LINES[name]] = amount
    taken[LINES["pods"]] = 1
    taken[VFS] = len(pod_info.interfaces)
    taken[MBPS] = sum(interface.min_tx_rate for interface in pod_info.interfaces)
    return taken
