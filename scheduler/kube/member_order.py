"""The order of a group's members by rank: by their indexes, otherwise by their names in natural order."""

from collections.abc import Mapping, Sequence

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
    labels = pod.metadata.labels or {}
    texts = (labels.get(key) or pod.annotations.get(key) or "" for key in keys)
    return next((int(text) for text in texts if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS), -1)


def ranks(pods: Mapping[str, tuple[Order, str]]) -> dict[str, int]:
    """Return each member's rank from 0 by uid, given the order and the controller of all pods of the group.

    It is the index in the member's set, after the members of earlier sets: a lost pod leaves its rank free, except the
    last one of a set. Pods without an index have their place in the order as rank.
    """
    sets = {uid: (order[0], owner if order[0] < 0 else "") for uid, (order, owner) in pods.items()}
    sizes, first_names = dict[tuple[int, str], int](), dict[tuple[int, str], Order]()
    for uid, (order, _) in sorted(pods.items(), key=lambda pod: pod[1][0][2]):
        sizes[sets[uid]] = max(sizes.get(sets[uid], 0), order[1] + 1)
        first_names.setdefault(sets[uid], order)
    first_ranks, rank = dict[tuple[int, str], int](), 0
    for one in sorted(sizes, key=lambda one: (one[0], first_names[one][2])):
        first_ranks[one] = rank
        rank += sizes[one]
    if all(order[1] >= 0 for order, _ in pods.values()) and rank <= MOST_MEMBERS:
        return {uid: first_ranks[sets[uid]] + order[1] for uid, (order, _) in pods.items()}
    places = {order: place for place, order in enumerate(sorted({order for order, _ in pods.values()}))}
    return {uid: places[order] for uid, (order, _) in pods.items()}
