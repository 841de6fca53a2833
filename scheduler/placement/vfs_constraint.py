"""The VFs as a constraint like any other, and the last to be placed: the others' proposals may narrow it.

It judges and places by the same functions as the plugin over columns (`scheduler.plugins.rdma_vfs`), which judges
thousands of nodes at once; pods that request VFs only never come here.
"""

from collections.abc import Iterator, Mapping

from mooring import names
from mooring.annotations.inventory import Inventory, Pf, read_inventory
from mooring.annotations.request import PodRequest, read_request
from scheduler.constraints.protocol import VFS, Beside, NodeSide, PodSide, Proposal, Unmet
from scheduler.kube.refused import Refused
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

    def judge(self, request: PodRequest, free_vfs: FreeVfs) -> int | str:
        demands = demands_on(request, free_vfs.pfs)
        if isinstance(demands, Refused):
            return demands.reason
        count = len(request.interfaces)
        if request.pfs != "distinct" and free_vfs.vf_count < count:
            return NOT_ENOUGH["vfs"]
        if free_vfs.free_mbps < sum(interface.min_tx_rate for interface in request.interfaces):
            return NOT_ENOUGH["rate"]
        offer = free_vfs.offered_vfs
        return min(offer - free_vfs.vf_count + count, offer) * 100 // max(offer, 1)

    def place(
        self, request: PodRequest, free_vfs: FreeVfs, beside: Beside, steps: Steps | None = None
    ) -> Iterator[Proposal]:
        """Yield the one placement that `scheduler.placement.place` finds within the other kinds' proposals."""
        demands = demands_on(request, free_vfs.pfs)
        if isinstance(demands, Refused):
            raise Unmet(demands.reason)
        for proposal in beside.values():
            demands = _narrow(demands, proposal.narrows.get(VFS, {}), free_vfs.pfs)
        placement = place_on(demands, free_vfs.capacities, request.pfs, free_vfs.shared_ports, steps=steps or Steps())
        if isinstance(placement, Refused):
            raise Unmet(placement.reason)
        yield Proposal(tuple(free_vfs.pfs[index].name for index in placement.pfs))


def _narrow(demands: tuple[VfDemand, ...], narrowing: Narrowing, pfs: tuple[Pf, ...]) -> tuple[VfDemand, ...]:
    if not narrowing:
        return demands
    result = list(demands)
    for interface, pf_names in narrowing.items():
        if 0 <= interface < len(demands):
            rate, able = demands[interface]
            mask = sum([1 << index for index, pf in enumerate(pfs) if pf.name in pf_names])
            result[interface] = VfDemand(rate, able & mask)
    return tuple(result)
