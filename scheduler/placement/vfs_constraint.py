"""The VFs as a constraint like any other, and the last to be placed: what the others propose may narrow it.

It judges and places by the same functions as the columns' rules (`scheduler.plugins.rdma_vfs`), which look at thousands
of nodes at once; pods that ask for VFs only never come here.
"""

from collections.abc import Iterator, Mapping

from mooring import names
from mooring.inventory import Inventory, Pf, read_inventory
from mooring.request import PodRequest, read_request
from scheduler.constraints.protocol import VFS, Beside, NodeSide, PodSide, Proposal, Unmet
from scheduler.placement.assign import NOT_ENOUGH, place_on, wants_on
from scheduler.placement.place import Want
from scheduler.placement.vf_accounting import Supply

Narrowing = Mapping[int, frozenset[str]]
_ONLY_HERE = "no PF may give an interface where the other resources of the pod are"


class Vfs:
    """VFs of PFs: a unit is named by its PF here, which VF of it is chosen when all else is settled."""

    def read_request(self, pod: PodSide) -> PodRequest | None:
        return read_request({names.REQUEST: pod.text})

    def read_inventory(self, node: NodeSide) -> Inventory:
        return read_inventory(node.text)

    def judge(self, request: PodRequest, left: Supply) -> int | str:
        wants = wants_on(request, left.pfs)
        if isinstance(wants, str):
            return wants
        wanted = len(request.interfaces)
        if request.pfs != "distinct" and left.free_vfs < wanted:
            return NOT_ENOUGH["vfs"]
        if left.free_mbps < sum(interface.min_tx_rate for interface in request.interfaces):
            return NOT_ENOUGH["rate"]
        offered = left.offered_vfs
        return min(offered - left.free_vfs + wanted, offered) * 100 // max(offered, 1)

    def place(self, request: PodRequest, left: Supply, beside: Beside) -> Iterator[Proposal]:
        """Yield the one placement that `scheduler.placement.place` finds under what the kinds before ask of the PFs."""
        wants = wants_on(request, left.pfs)
        if isinstance(wants, str):
            raise Unmet(wants)
        for proposal in beside.values():
            wants = _narrowed(wants, proposal.narrows.get(VFS, {}), left.pfs)
        if not all(want.pfs for want in wants):
            raise Unmet(_ONLY_HERE)
        found = place_on(wants, left.rooms, request.pfs)
        if isinstance(found, str):
            raise Unmet(found)
        yield Proposal(tuple(left.pfs[index].name for index in found.pfs))


def _narrowed(wants: tuple[Want, ...], narrowing: Narrowing, pfs: tuple[Pf, ...]) -> tuple[Want, ...]:
    if not narrowing:
        return wants
    masks = {
        interface: sum(1 << index for index, pf in enumerate(pfs) if pf.name in allowed)
        for interface, allowed in narrowing.items()
    }
    return tuple(want._replace(pfs=want.pfs & masks.get(index, -1)) for index, want in enumerate(wants))
