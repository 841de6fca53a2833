"""The VFs as a constraint like any other, and the last to be placed: the others' proposals may narrow it.

It judges and places by the same functions as the plugin over columns (`scheduler.plugins.rdma_vfs`), which judges
thousands of nodes at once; pods that request VFs only never come here.
"""

from collections.abc import Iterator, Mapping

from mooring import names
from mooring.annotations.inventory import Inventory, Pf, read_inventory
from mooring.annotations.request import PodRequest, read_request
from scheduler.constraints.protocol import VFS, Beside, NodeSide, PodSide, Proposal, Unmet
from scheduler.placement.assign import NOT_ENOUGH, demands_on, place_on
from scheduler.placement.place import VfDemand
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import FreeVfs

Narrowing = Mapping[int, frozenset[str]]


class Vfs:
    """VFs of PFs: a unit is named by its PF here; its VF is chosen once everything else is settled."""

    def read_request(self, pod: PodSide) -> PodRequest | None:
        return read_request({names.REQUEST: pod.text})

    def read_inventory(self, node: NodeSide) -> Inventory:
        return read_inventory(node.text)

    def judge(self, request: PodRequest, left: FreeVfs) -> int | str:
        demands = demands_on(request, left.pfs)
        if isinstance(demands, str):
            return demands
        wanted = len(request.interfaces)
        if request.pfs != "distinct" and left.vf_count < wanted:
            return NOT_ENOUGH["vfs"]
        if left.free_mbps < sum(interface.min_tx_rate for interface in request.interfaces):
            return NOT_ENOUGH["rate"]
        offered = left.offered_vfs
        return min(offered - left.vf_count + wanted, offered) * 100 // max(offered, 1)

    def place(
        self, request: PodRequest, left: FreeVfs, beside: Beside, steps: Steps | None = None
    ) -> Iterator[Proposal]:
        """Yield the one placement that `scheduler.placement.place` finds within the other kinds' proposals."""
        demands = demands_on(request, left.pfs)
        if isinstance(demands, str):
            raise Unmet(demands)
        for proposal in beside.values():
            demands = _narrowed(demands, proposal.narrows.get(VFS, {}), left.pfs)
        found = place_on(demands, left.capacities, request.pfs, left.shared_ports, steps=steps or Steps())
        if isinstance(found, str):
            raise Unmet(found)
        yield Proposal(tuple(left.pfs[index].name for index in found.pfs))


def _narrowed(demands: tuple[VfDemand, ...], narrowing: Narrowing, pfs: tuple[Pf, ...]) -> tuple[VfDemand, ...]:
    if not narrowing:
        return demands
    narrowed = list(demands)
    for interface, allowed in narrowing.items():
        if 0 <= interface < len(demands):
            rate, able = demands[interface]
            there = sum([1 << index for index, pf in enumerate(pfs) if pf.name in allowed])
            narrowed[interface] = VfDemand(rate, able & there)
    return tuple(narrowed)
