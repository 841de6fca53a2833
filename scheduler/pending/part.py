"""A part of the machine: what one feature keeps, and what it does when something happens.

The machine tells its parts of each event in the order of its list (`scheduler.state.machine.Machine.parts`). A part
overrides the methods that it needs. The cache and the queue have taken the event in before, unless a method says
otherwise. Pure: time is an argument, instructions are returned.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.node_info import NodeInfo
from scheduler.cycle.instructions import Instruction, Order, Result
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.objects import Pod


@dataclass(frozen=True, slots=True)
class PodChange:
    """A pod on a node that is new or another version; ``event`` is what its change may help others to."""

    pod: Pod
    previous: AssignedPod | None
    assigned: AssignedPod
    event: ClusterEvent


class Part:
    """The events; each method does nothing here."""

    __slots__ = ()

    def pod_updated(self, pod: Pod, now: float) -> None:
        """Take in a pod of any state as the watch shows it, before anything else is done about it."""

    def pod_assigned(self, change: PodChange, now: float) -> Iterable[Instruction]:
        """Take in a pod that has a node, and is new or another version."""
        return ()

    def pod_unreadable(self, uid: str) -> None:
        """Take in that a pod cannot be read any more; what it holds on its node stays held."""

    def pod_deleted(self, uid: str, assigned_pod: AssignedPod | None, now: float) -> None:
        """Take in that a pod is gone, or is over; ``assigned_pod`` is what it was on its node, if it had one."""

    def node_changed(self, previous: NodeInfo | None, node: NodeInfo, now: float) -> Iterable[Instruction]:
        """Take in a node that is new or has changed."""
        return ()

    def node_removed(self, name: str, now: float) -> None:
        """Take in that a node is gone, or cannot be read."""

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        """Take in the result of a write."""
        return ()

    def tick(self, now: float) -> Iterable[Instruction]:
        """Return what is due."""
        return ()

    def next_due(self) -> float | None:
        """Return when `tick` has work, if nothing happens before; None for never."""
        return None

    def report_again(self) -> Iterable[Instruction]:
        """Return the reports that hold until a person acts: a new leader sends them again."""
        return ()

    def check(self) -> None:
        """Raise AssertionError if what is kept contradicts its source."""
