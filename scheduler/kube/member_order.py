"""The order of a group's members by rank: by their indexes, otherwise by their names in natural order."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import count

from mooring.annotations.group import MOST_MEMBERS
from mooring.natural_order import MOST_DIGITS, natural
from scheduler.kube.objects import Pod

# The index of the member's set: a JobSet's Jobs (JobGlobalIndexKey in api/jobset/v1alpha2/jobset_types.go), a
# LeaderWorkerSet's replicas (GroupIndexLabelKey in api/leaderworkerset/v1/leaderworkerset_types.go).
_SETS = ("jobset.sigs.k8s.io/job-global-index", "leaderworkerset.sigs.k8s.io/group-index")
# The index of the pod in its set. A LeaderWorkerSet's leader belongs to another StatefulSet than its workers: its
# pod-index is that of its replica, and worker-index (WorkerIndexLabelKey) counts from the leader.
_INDEXES = (
    "leaderworkerset.sigs.k8s.io/worker-index",
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
)
Order = tuple[int, int, tuple[tuple[int, int, str], ...]]


def by_index(pod: Pod) -> Order:
    """Return a sort key for a pod's place among the members of its group."""
    return _index(pod, _SETS), _index(pod, _INDEXES), natural(pod.metadata.name)


def _index(pod: Pod, keys: Sequence[str]) -> int:
    """Return the number in a label or annotation with one of these keys; -1 if there is none."""
    labels, annotations = pod.metadata.labels or {}, pod.annotations
    for key in keys:
        text = labels.get(key) or annotations.get(key) or ""
        if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS:
            return int(text)
    return -1


def ranks(pods: Mapping[str, tuple[Order, str]], min_members: int) -> dict[str, int]:
    """Return each member's rank from 0 by uid, given the order and the controller of all pods of the group.

    It is the index in the member's set, after the members of earlier sets: a lost pod leaves its rank free. If equal
    sets have as many members as the group needs, so does the last one of a set. Empty if pods have no index.
    """
    sets = {uid: (order[0], owner if order[0] < 0 else "") for uid, (order, owner) in pods.items()}
    set_sizes, first_names = dict[tuple[int, str], int](), dict[tuple[int, str], Order]()
    for uid, (order, _) in sorted(pods.items(), key=lambda pod: pod[1][0][2]):
        set_sizes[sets[uid]] = max(set_sizes.get(sets[uid], 0), order[1] + 1)
        first_names.setdefault(sets[uid], order)
    if max(set_sizes.values(), default=0) * len(set_sizes) == min_members:
        set_sizes = dict.fromkeys(set_sizes, min_members // len(set_sizes))
    first_ranks, rank = dict[tuple[int, str], int](), 0
    for set_key in sorted(set_sizes, key=lambda set_key: (set_key[0], first_names[set_key][2])):
        first_ranks[set_key] = rank
        rank += set_sizes[set_key]
    if all(order[1] >= 0 for order, _ in pods.values()) and rank <= MOST_MEMBERS:
        return {uid: first_ranks[sets[uid]] + order[1] for uid, (order, _) in pods.items()}
    return {}


def ranks_by_domain(uids: Sequence[str], sizes: Sequence[int], domains: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the ranks of members without an index, given by uid in the order of their names.

    A member that is made again may have another name. So those on nodes have consecutive ranks in each of their
    ``domains``, which are from wide to narrow, as are the ``sizes`` of slices. Of the others, those that are nearest by
    name fill the slices that lack some, and the rest follows in order.
    """
    positions = {uid: position for position, uid in enumerate(uids)}
    domain_of = {uid: tuple(domains[uid]) for uid in uids if uid in domains}
    first_positions, ends = dict[tuple[str, ...], int](), dict[tuple[str, ...], int]()
    for uid, domain in domain_of.items():
        for wider in _prefixes(domain):
            first_positions.setdefault(wider, positions[uid])
    result, previous, rank = dict[str, int](), None, 0
    for uid in sorted(domain_of, key=lambda uid: [first_positions[wider] for wider in _prefixes(domain_of[uid])]):
        domain = domain_of[uid]
        if previous is not None and domain != previous:
            rank += -rank % next(size for size, old, new in zip(sizes, previous, domain, strict=True) if old != new)
        result[uid], previous, rank = rank, domain, rank + 1
        ends[domain] = rank
    gaps = {domain: list(range(end, end + -end % sizes[-1])) for domain, end in ends.items()}
    used_ranks = {*result.values(), *(rank for gap in gaps.values() for rank in gap)}
    waiting_uids = [uid for uid in uids if uid not in domains]
    while waiting_uids and (domain_at := {positions[uid]: domain for uid, domain in domain_of.items() if gaps[domain]}):
        open_positions = sorted(domain_at)
        nearest = {uid: _nearest(positions[uid], open_positions) for uid in waiting_uids}
        for uid in sorted(waiting_uids, key=lambda uid: abs(nearest[uid] - positions[uid])):
            if gap := gaps[domain_at[nearest[uid]]]:
                result[uid] = gap.pop(0)
        waiting_uids = [uid for uid in waiting_uids if uid not in result]
    free_ranks = (rank for rank in count() if rank not in used_ranks)
    return result | dict(zip(waiting_uids, free_ranks, strict=False))


def _prefixes(path: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(path[: depth + 1]) for depth in range(len(path))]


def _nearest(position: int, positions: Sequence[int]) -> int:
    """Return the nearest of positions in order."""
    index = bisect_left(positions, position)
    return min(positions[max(index - 1, 0) : index + 1], key=lambda neighbor: abs(neighbor - position))
