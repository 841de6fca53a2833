"""What a node's pods leave, as sums that follow as pods are taken off and put on. Pure.

`scheduler.cycle.node_dry_run` asks these again and again for thousands of nodes: they are lists
of integers, and nobody else's.
"""

from collections.abc import Container, Sequence
from typing import NamedTuple

from mooring.request import Spreading
from scheduler.cache.cache import AssignedPod
from scheduler.cache.node_columns import PODS
from scheduler.placement.assign import place_on
from scheduler.placement.place import PfCapacity, VfDemand
from scheduler.placement.vf_accounting import VfAccounting
from scheduler.plugins.interface import Texts
from scheduler.plugins.node_resources_fit import counts_on


class Need(NamedTuple):
    """So much of a resource, and the line of `scheduler.cache.node_columns.NodeColumns` on which it is kept."""

    line: int
    name: str
    amount: int


class AmountSums:
    """NodeResourcesFit."""

    def __init__(self, needs: Sequence[Need], left: Sequence[int], published: Container[str]) -> None:
        """Take what a node has left by line, and the resources that it publishes."""
        # By how much the number of pods, and each amount that counts here, exceeds what the pod needs.
        self._spare = [left[PODS] - 1]
        self._names: list[str] = []
        for line, name, amount in needs:
            if counts_on(name, published):
                self._spare.append(left[line] - amount)
                self._names.append(name)

    def shift(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        self._spare[0] -= sign * len(assigned_pods)
        for place, name in enumerate(self._names, 1):
            self._spare[place] -= sign * sum([assigned.resources.get(name, 0) for assigned in assigned_pods])

    def leave_room_for(self, assigned_pods: Sequence[AssignedPod]) -> bool:
        """Return whether the dry run's pod has room beside these too."""
        if self._spare[0] < len(assigned_pods):
            return False
        return all(
            spare >= sum([assigned.resources.get(name, 0) for assigned in assigned_pods])
            for spare, name in zip(self._spare[1:], self._names, strict=True)
        )

    def refusal(self) -> Texts:
        if min(self._spare) >= 0:
            return ()
        lacking = [
            f"Insufficient {name}" for spare, name in zip(self._spare[1:], self._names, strict=True) if spare < 0
        ]
        return ("Too many pods", *lacking) if self._spare[0] < 0 else tuple(lacking)


class VfSums:
    """RdmaVfs where each claim holds VFs of its own: what goes is added to what is left, and what comes taken off."""

    def __init__(self, vf_accounting: VfAccounting, demands: tuple[VfDemand, ...], spreading: Spreading | None) -> None:
        self._vf_accounting, self._demands, self._spreading = vf_accounting, demands, spreading
        self._vfs = [capacity.vfs for capacity in vf_accounting.free_vfs.capacities]
        self._mbps = [capacity.mbps for capacity in vf_accounting.free_vfs.capacities]
        # What each pod that was moved holds: index of the PF and rate, a pair for each VF.
        self._held: dict[str, list[tuple[int, int]]] = {}

    def shift(self, assigned_pods: Sequence[AssignedPod], sign: int) -> None:
        for assigned in assigned_pods:
            if assigned.assignment is None:
                continue
            held = self._held.get(assigned.uid)
            if held is None:
                held = self._held[assigned.uid] = self._vf_accounting.held(assigned.uid, assigned.assignment)
            for index, rate in held:
                self._vfs[index] -= sign
                self._mbps[index] -= sign * rate

    def refusal(self) -> Texts:
        capacities = tuple(map(PfCapacity, self._vfs, self._mbps))
        found = place_on(self._demands, capacities, self._spreading)
        return (found,) if isinstance(found, str) else ()
