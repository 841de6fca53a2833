"""Decide whether a VF can be assigned now; if not, why, and which rate is still reserved on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from advertiser.inventory.facts import ClusterFacts, Host, Vf
from mooring.annotations.drain import DRAINED
from mooring.annotations.inventory import HELD_BY, LOST
from mooring.names import LinkType
from mooring.nic import vf_users
from mooring.nic.pci import vf_address
from mooring.records.ledger import LedgerEntry

_LONGEST_WHY = 200
_GONE, _NO_DRIVER, _NO_RDMA = "the VF is gone", "no driver", "no RDMA device"
_NO_NETDEV = "no netdev in the host's network namespace"

Reason = tuple[str, int]


@dataclass(frozen=True, slots=True)
class VfLayout:
    """VF 0's PCI address, stride and number of VFs; readers of the inventory compute all addresses from them."""

    vf0: str
    stride: int
    vfs: int


@dataclass(frozen=True, slots=True)
class PfContext:
    """The facts about the PF ``pf``; ``obstacle`` is why none of its VFs can be assigned.

    ``without_guid`` is why VFs cannot be given the GUID that they lack, by index.
    """

    host: Host
    cluster_facts: ClusterFacts
    pf: str
    obstacle: str | None = None
    link: LinkType = "ethernet"
    without_guid: Mapping[int, str] = field(default_factory=dict, hash=False)


def unusable_reason(index: int, vf: Vf | None, layout: VfLayout, context: PfContext) -> Reason | None:
    """Return why VF ``index`` cannot be assigned now and its reserved min rate in Mb/s; None if it can.

    A pod that holds the VF by its assignment is not a reason: the scheduler knows that from the assignment.
    """
    address = vf_address(layout.vf0, layout.stride, index)
    holder = _holder_without_assignment(index, address, context)
    if holder is not None:
        return holder
    why = context.obstacle or _misplaced(vf, address) or _held_wrongly(vf, address, context)
    why = why or _drained(index, context) or _not_given(address, context) or _unfit(vf, address, context)
    why = why or (context.without_guid.get(index) if address not in context.host.ledger else None)
    return None if why is None else (why[:_LONGEST_WHY], 0)


def may_be_transient(why: str) -> bool:
    """Return whether a reason can be transient, while a VF moves or its driver is rebound."""
    moves = why in (_GONE, _NO_DRIVER, _NO_NETDEV, _NO_RDMA) or why.startswith((LOST, HELD_BY))
    return moves or vf_users.may_be_transient(why)


def _holder_without_assignment(index: int, address: str, context: PfContext) -> Reason | None:
    if address not in context.host.ledger:
        return None
    entry = context.host.ledger[address]
    if entry is None:
        return "its ledger entry cannot be read", 0
    assignments = context.cluster_facts.assigned
    # Compare uid, PF, index and address, as the scheduler does: an assignment with a PF's old name does not count.
    if assignments is None or (entry.uid, context.pf, index, address) in assignments:
        return None
    return f"{HELD_BY}{entry.uid}", entry.reserved_mbps


def _not_given(address: str, context: PfContext) -> str | None:
    """Return why the CNI plugin cannot attach VFs now; VFs that pods have are not concerned."""
    faults = context.host.vf_faults
    if faults is None or not faults.unavailable or address in context.host.ledger:
        return None
    return f"the CNI plugin cannot give it: {faults.unavailable}"


def _misplaced(vf: Vf | None, address: str) -> str | None:
    if vf is None or not vf.exists or vf.address is None:
        return _GONE
    # The reason does not contain the address, so that VFs with equal reasons share one entry.
    return None if vf.address == address else "its PCI address does not match sriov_offset and sriov_stride"


def _held_wrongly(vf: Vf | None, address: str, context: PfContext) -> str | None:
    entry = context.host.ledger.get(address)
    if entry is None or not is_lost(vf, entry, context.host):
        return None
    return f"{LOST}on the host although pod {entry.uid} holds it"


def is_lost(vf: Vf | None, entry: LedgerEntry, host: Host) -> bool:
    """Return whether a VF is on the host although, by the ledger, a pod of this boot holds it."""
    if vf is None or entry.pci in host.unsettled or not should_be_away(entry, host):
        return False
    return vf.rdma_here and host.rdma_exclusive if entry.rdma_only or vf.lacks_netdev else vf.netdev


def should_be_away(entry: LedgerEntry, host: Host) -> bool:
    """Return whether a pod has the VF of an entry; entries of an earlier boot do not count."""
    return entry.phase == "held" and entry.boot == host.boot


def still_held(host: Host) -> Mapping[str, LedgerEntry | None]:
    """Return the ledger's entries whose VFs pods may still have, by PCI address.

    Entries of an earlier boot are left out, and entries whose VF is on the host: the PF's driver was reloaded, and the
    pod's VF no longer exists.
    """
    vfs = {vf.address: vf for function in host.functions for vf in function.vfs.values()}
    return {
        pci: entry
        for pci, entry in host.ledger.items()
        if entry is None or not (entry.boot != host.boot or is_lost(vfs.get(pci), entry, host))
    }


def _drained(index: int, context: PfContext) -> str | None:
    return DRAINED if {context.pf, f"{context.pf}/{index}"} & context.cluster_facts.drained else None


def _unfit(vf: Vf | None, address: str, context: PfContext) -> str | None:
    """Return why a VF that no pod holds cannot be assigned: its driver, its devices, or the host's use of them."""
    if vf is None or address in context.host.ledger or address in context.host.unsettled:
        return None
    if vf.driver is None:
        return _NO_DRIVER
    if user := vf_users.user_of(vf.devices, context.host.uses):
        return user
    # Without IPoIB an InfiniBand VF has only its RDMA device, and pods get only that.
    if not vf.netdev and not (context.link == "infiniband" and vf.lacks_netdev and vf.rdma):
        return _NO_NETDEV
    return None if vf.rdma else _NO_RDMA
