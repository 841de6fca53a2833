"""The order of a group's members, that of their ranks: by their indexes, else by their names as people count."""

from collections.abc import Sequence

from mooring.natural_order import MOST_DIGITS, natural
from scheduler.kube.objects import Pod

# Which of several sets of members: a JobSet's Jobs (JobGlobalIndexKey in api/jobset/v1alpha2/jobset_types.go), a
# LeaderWorkerSet's replicas (GroupIndexLabelKey in api/leaderworkerset/v1/leaderworkerset_types.go).
_SETS = ("jobset.sigs.k8s.io/job-global-index", "leaderworkerset.sigs.k8s.io/group-index")
# The pod in its set. A LeaderWorkerSet's leader is of another StatefulSet than its workers: its pod-index is that of
# its replica, and worker-index (WorkerIndexLabelKey) counts from the leader.
_INDEXES = (
    "leaderworkerset.sigs.k8s.io/worker-index",
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
)
Order = tuple[int, int, tuple[tuple[int, int, str], ...]]


def by_index(pod: Pod) -> Order:
    """Return a pod's place among the members of its group, as a key to sort by."""
    return _index(pod, _SETS), _index(pod, _INDEXES), natural(pod.metadata.name)


def _index(pod: Pod, keys: Sequence[str]) -> int:
    """Return the number that a label or annotation of one of these keys gives; -1 if none does."""
    labels = pod.metadata.labels or {}
    texts = (labels.get(key) or pod.annotations.get(key) or "" for key in keys)
    return next((int(text) for text in texts if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS), -1)
