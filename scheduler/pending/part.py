"""The interface of a part of the machine: the state of one feature, and its reactions to events.

The machine calls its parts for each event in the order of its list (`scheduler.state.machine.Machine.parts`):
`pod_updated` before the cache and the queue process the event, all other methods after them. A part overrides the
methods that it needs. Pure: time is in monotonic seconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.node_info import NodeInfo
from scheduler.cycle.instructions import Instruction, Order, Result
from scheduler.kube.objects import Pod


@dataclass(frozen=True, slots=True)
class PodChange:
    """A pod on a node that is new or has changed."""

    pod: Pod
    previous: AssignedPod | None
    assigned_pod: AssignedPod


class Part:
    """The events; by default each method does nothing."""

    __slots__ = ()

    def pod_updated(self, pod: Pod, now: float) -> None:
        """Process a pod in any state as the watch delivers it; the cache still holds its previous state."""

    def pod_assigned(self, change: PodChange, now: float) -> Iterable[Instruction]:
        """Process a pod that has a node, and is new or has changed."""
        return ()

    def pod_unreadable(self, uid: str) -> None:
        """Process that a pod has become unreadable; it keeps its VFs and its room on its node."""

    def pod_deleted(self, uid: str, assigned_pod: AssignedPod | None, now: float) -> None:
        """Process that a pod is deleted or has ended; ``assigned_pod`` is its last state on its node, if it had one."""

    def node_changed(self, previous: NodeInfo | None, node: NodeInfo, now: float) -> Iterable[Instruction]:
        """Process a node that is new or has changed."""
        return ()

    def node_removed(self, name: str, now: float) -> None:
        """Process that a node is deleted or unreadable."""

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        """Process the result of a write."""
        return ()

    def tick(self, now: float) -> Iterable[Instruction]:
        """Return what is due."""
        return ()

    def next_due(self) -> float | None:
        """Return when `tick` has work, if nothing happens before; None for never."""
        return None

    def repeat_reports(self) -> Iterable[Instruction]:
        """Return the reports that are valid until a person acts; a new leader sends them again."""
        return ()

    def check(self) -> None:
        """Raise AssertionError if the part's state contradicts its source."""
