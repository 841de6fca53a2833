"""The order of a group's members by rank: by their indexes, otherwise by their names in natural order."""

from collections.abc import Sequence

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
