"""The order in which a group's members are tried: by their index, else by their names as people count."""

from mooring.natural_order import MOST_DIGITS, natural
from scheduler.kube.objects import Pod

# A Job's and a StatefulSet's (or a LeaderWorkerSet's) numbers of their pods.
_INDEXES = ("batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index")
Order = tuple[int, tuple[tuple[int, int, str], ...]]


def by_index(pod: Pod) -> Order:
    """Return a pod's place among the members of its group, as a key to sort by."""
    labels = pod.metadata.labels or {}
    texts = (labels.get(key) or pod.annotations.get(key) or "" for key in _INDEXES)
    index = next((int(text) for text in texts if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS), -1)
    return index, natural(pod.metadata.name)
