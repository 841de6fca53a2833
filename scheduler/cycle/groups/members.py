"""Compare the members of a group: what they have in common, and how they differ. Pure."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

import msgspec

from mooring.annotations.request import PodRequest
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
    """Return whether a uid is that of a spare member: it is no pod."""
    return _SPARE in uid


def alike(pod_info: PodInfo) -> Hashable:
    """Return a key; if a member does not fit, no member with the same key does."""
    return pod_info.shape, pod_info.affinity_info, pod_info.spread, pod_info.volumes


def distinct(members: Sequence[PodInfo]) -> Iterator[PodInfo]:
    """Yield one member of each kind."""
    yield from {alike(member): member for member in members}.values()


def are_interchangeable(members: Sequence[PodInfo]) -> bool:
    """Return whether greedy order places as many of these members as any other order does.

    This holds for equal members that have at most one rule about each other. With anti-affinity over a label, each of
    its domains takes one member. With spreading over a label, a member in one domain leaves no less room in the others.
    With affinity over a label, members are tried in each of its domains (`together_by`). Two rules can conflict: a
    place that is as good as others by one rule can be worse by the other.
    """
    return len({alike(member) for member in members}) == 1 and len(_rules(members[0])) < 2


def apart_by(members: Sequence[PodInfo]) -> list[str]:
    """Return the labels whose values no two of these members may share, by rules that they all have."""
    kinds = list({member.affinity_info: member for member in members})
    return [
        term.key
        for term in kinds[0].required_anti_affinity
        if all(term in info.required_anti_affinity and _selects(term, info) for info in kinds)
    ]


def together_by(members: Sequence[PodInfo]) -> str:
    """Return a label whose value all of these members must share, by a rule of theirs; empty if there is none."""
    kinds = list({member.affinity_info: member for member in members})
    return next(
        (
            term.key
            for term in kinds[0].required_affinity
            if all(term in info.required_affinity and _selects(term, info) for info in kinds)
        ),
        "",
    )


def _selects(term: Term, affinity_info: AffinityInfo) -> bool:
    return affinity_info.namespace in term.scope.namespaces and term.scope.selector.selects(affinity_info.labels)


def reads_other_nodes(pod_info: PodInfo) -> bool:
    """Return whether pods on other nodes restrict where a member may be."""
    return bool(_rules(pod_info))


def _rules(pod_info: PodInfo) -> list[object]:
    """Return a member's rules about pods on other nodes."""
    affinity_info = pod_info.affinity_info
    anti_affinity = [term for term in affinity_info.required_anti_affinity if term.key != HOSTNAME]
    spread = [constraint for constraint in pod_info.spread if constraint.hard]
    return [*affinity_info.required_affinity, *anti_affinity, *spread]


def needs_order(pod_info: PodInfo) -> bool:
    """Return whether a member's possible places depend on which others are placed already, not only on their number."""
    return is_spread(pod_info) or bool(pod_info.affinity_info.required_affinity)


def is_spread(pod_info: PodInfo) -> bool:
    """Return whether a member has hard topology spread constraints, so that the order of equal members matters."""
    return any(constraint.hard for constraint in pod_info.spread)


def requests_of(members: Sequence[PodInfo]) -> Counter[PodRequest | None]:
    """Return how many members have each request."""
    counts = Counter(member.shape for member in members)
    counts_by_request = Counter[PodRequest | None]()
    for member in by_shape(members):
        counts_by_request[member.request] += counts[member.shape]
    return counts_by_request


def namespace_of(members: Sequence[PodInfo]) -> str | None:
    """Return the namespace of a group's members; None without members."""
    return next((member.pod.metadata.namespace for member in members), None)


def by_shape(members: Sequence[PodInfo]) -> list[PodInfo]:
    """Return one member of each shape."""
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
    """Return a sort key for the size of a member's requests, VFs first."""
    rate = sum(interface.min_tx_rate for interface in pod_info.interfaces)
    return len(pod_info.interfaces), rate, pod_info.resources.get("cpu", 0), pod_info.resources.get("memory", 0)


def needs(pod_info: PodInfo) -> list[int]:
    """Return what a pod needs of each resource column."""
    amounts = [0] * LINE_COUNT
    for name, amount in pod_info.resources.items():
        if name in LINES:
            amounts[LINES[name]] = amount
    amounts[LINES["pods"]] = 1
    amounts[VFS] = len(pod_info.interfaces)
    amounts[MBPS] = sum(interface.min_tx_rate for interface in pod_info.interfaces)
    return amounts
