"""What a node's fresh inventory shows of the VFs of its pods. Pure.

An inventory that is not fresh (from another boot, of a node that is not Ready, or missing) contradicts nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.drain import DRAINED
from mooring.annotations.inventory import LOST, Out, Pf
from scheduler.cache.node_info import NodeInfo
from scheduler.cache.unit_pools import Unit
from scheduler.constraints.protocol import VFS

# Reasons of the advertiser that do not count against a pod that already has the VF by assignment.
_HARMLESS = frozenset({DRAINED, "preparing"})
# Devices that more than one live pod claims, and the pods' uids.
Disputes = Mapping[Unit, tuple[str, ...]]
NO_DISPUTES: Disputes = MappingProxyType({})


class NodeClaims:
    """A node's current inventory and its disputed devices, to compare with the assignments of its pods.

    One instance serves all pods that are judged together: the inventory's PFs are indexed once, and their VFs only for
    PFs that a pod names.
    """

    def __init__(self, node_info: NodeInfo | None, disputes: Disputes = NO_DISPUTES) -> None:
        is_fresh = node_info is not None and node_info.fault is None and node_info.unready_since is None
        inventory = node_info.inventory if node_info is not None and is_fresh else None
        self._pfs = {pf.name: pf for pf in inventory.pfs} if inventory is not None else None
        self._disputes = disputes
        self._outs: dict[str, dict[int, Out]] = {}

    def contradiction(self, assignment: Assignment, leaves: Callable[[str], bool]) -> str:
        """Return how a fresh inventory contradicts an assignment; empty if it does not, or is not fresh.

        ``leaves`` returns whether a pod's claims are about to end.
        """
        if self._pfs is None:
            return ""
        for vf in assignment.vfs:
            reason = self._describe_contradiction(vf, self._pfs.get(vf.pf), assignment.uid)
            if reason or (reason := self._describe_dispute(vf, assignment.uid, leaves)):
                return f"VF {vf.pci} ({vf.pf}/{vf.vf}) {reason}"
        return ""

    def loss(self, assignment: Assignment) -> str:
        """Return which VF of a running pod a fresh inventory shows as lost, or on a PF that is down;
        otherwise empty.
        """
        for vf in assignment.vfs if self._pfs is not None else ():
            pf = self._pfs.get(vf.pf) if self._pfs is not None else None
            reason = "" if pf is None or pf.up else "has no network: the link of its PF is down"
            if reason := reason or self._describe_loss(vf, pf, assignment.uid):
                return f"VF {vf.pci} ({vf.pf}/{vf.vf}) {reason}"
        return ""

    def has_lost_vf(self, assignment: Assignment) -> bool:
        pfs = self._pfs
        return pfs is not None and any(self._describe_loss(vf, pfs.get(vf.pf), assignment.uid) for vf in assignment.vfs)

    def _describe_loss(self, vf: AssignedVf, pf: Pf | None, uid: str) -> str:
        out = None if pf is None else self._outs_of(pf).get(vf.vf)
        if out is not None and out.why.startswith(LOST):
            return "is back in the host's network namespace"
        return self._describe_contradiction(vf, pf, uid)

    def _describe_contradiction(self, vf: AssignedVf, pf: Pf | None, uid: str) -> str:
        if pf is None or vf.vf not in pf.vfs or pf.vf_pci(vf.vf) != vf.pci:
            return "no longer exists"
        if (pf.link, pf.network) != (vf.link, vf.network):
            return f"is now on {pf.link} network {pf.network!r}, not on {vf.link} network {vf.network!r}"
        out = self._outs_of(pf).get(vf.vf)
        if out is not None and out.why not in _HARMLESS and uid not in out.why:
            return f"cannot be used: {out.why}"
        return ""

    def _outs_of(self, pf: Pf) -> dict[int, Out]:
        if pf.name not in self._outs:
            self._outs[pf.name] = {index: out for out in pf.out for index in out.vfs}
        return self._outs[pf.name]

    def _describe_dispute(self, vf: AssignedVf, uid: str, leaves: Callable[[str], bool]) -> str:
        claimants = self._disputes.get(Unit(VFS, vf.pci), ()) if self._disputes else ()
        other_uids = [claimant for claimant in claimants if claimant != uid and not leaves(claimant)]
        return f"is also claimed by another pod: {_list_uids(other_uids)}" if other_uids else ""


def _list_uids(uids: Iterable[str]) -> str:
    return ", ".join(f"uid {uid}" for uid in uids)
