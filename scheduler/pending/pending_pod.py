"""A pod of this scheduler without a node. Pure."""

from dataclasses import dataclass

import msgspec

from mooring import names
from scheduler.constraints.kinds import NONE, Kinds, asked_kinds
from scheduler.cycle.decisions import Unschedulable
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo, read_pod_info

# The annotations with a pod's request; of all others only the size matters.
_DECISION_KEYS = (names.REQUEST, names.RIT_REQUEST, names.PLACEMENT, names.ASSIGNMENT, names.GROUP, names.RUNS)


@dataclass(slots=True)
class PendingPod:
    """A pending pod: since when it waits, how often it was tried, and the last message reported to its owner.

    ``oversized`` while its annotations are too large: any change of them may help. ``answer`` is why it was
    unschedulable, and for which state of the nodes (`NodeColumns.renewals`) that holds.
    """

    pod: Pod
    pod_info: PodInfo | Refused
    since: float
    reported_message: str = ""
    # The nominated node in the last report; None before the first report.
    reported_node: str | None = None
    attempts: int = 0
    oversized: bool = False
    answer: tuple[int, Unschedulable] | None = None

    def take(self, pod: Pod, kinds: Kinds = NONE) -> bool:
        """Store the pod's current object; return whether its request changed, and not only its status."""
        is_changed = not asks_the_same(self.pod, pod) or (self.oversized and self.pod.annotations != pod.annotations)
        self.pod = pod
        if is_changed:
            self.pod_info = read_pod_info(pod, kinds)
        elif isinstance(self.pod_info, PodInfo):
            # The annotations of a Binding must fit in addition to those that the pod has by then.
            self.pod_info = msgspec.structs.replace(self.pod_info, pod=pod)
        return is_changed

    def knows(self, message: str, node: str = "") -> bool:
        """Return whether this was the last report to the owner, by this process or, according to the pod's status,
        before it.

        ``node`` is where the pod is nominated; empty for no node.
        """
        return message == (self.reported_message or _condition_message(self.pod)) and node == self.shown_node

    @property
    def condition_message(self) -> str:
        """Return why the pod is not scheduled, as its status says."""
        return _condition_message(self.pod)

    @property
    def shown_node(self) -> str:
        """Return the nominated node that the pod's status shows, or soon will."""
        return (self.pod.status.nominated_node_name or "") if self.reported_node is None else self.reported_node


def asks_the_same(old: Pod, new: Pod) -> bool:
    """Return whether nothing of a pod has changed that decisions read."""
    same_keys = all(old.annotations.get(key) == new.annotations.get(key) for key in _DECISION_KEYS)
    same_keys = same_keys and asked_kinds(old.annotations) == asked_kinds(new.annotations)
    same_keys = same_keys and old.metadata.owner_references == new.metadata.owner_references
    return same_keys and old.spec == new.spec and old.metadata.labels == new.metadata.labels


def _condition_message(pod: Pod) -> str:
    conditions = (condition for condition in pod.status.conditions or () if condition.type == "PodScheduled")
    return next((condition.message or "" for condition in conditions if condition.status == "False"), "")
