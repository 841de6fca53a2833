"""Judge one VF: may it be assigned now, and if not, why, and which rate is still held on it."""

from collections.abc import Mapping
from dataclasses import dataclass

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
    """Where a PF's VFs must be: every reader of the inventory computes their addresses from these."""

    vf0: str
    stride: int
    vfs: int


@dataclass(frozen=True, slots=True)
class PfContext:
    """The facts for all VFs of the PF ``pf``, whose link is of this type; ``obstacle`` excludes them all."""

    host: Host
    cluster_facts: ClusterFacts
    pf: str
    obstacle: str | None = None
    link: LinkType = "ethernet"


def unusable_reason(index: int, vf: Vf | None, layout: VfLayout, context: PfContext) -> Reason | None:
    """Return why VF ``index`` is not to be used now and the min rate in Mb/s that it holds; None if it may be used.

    A holder by assignment is not a reason: use is derived from assignments, and a VF in a pod correctly has no netdev
    here.
    """
    address = vf_address(layout.vf0, layout.stride, index)
    held = _holder_without_assignment(index, address, context)
    if held is not None:
        return held
    why = context.obstacle or _misplaced(vf, address) or _held_wrongly(vf, address, context)
    why = why or _drained(index, context) or _not_given(address, context) or _unfit(vf, address, context)
    return None if why is None else (why[:_LONGEST_WHY], 0)


def may_be_transient(why: str) -> bool:
    """Return whether a reason is also found for a moment while a VF changes hands, or its driver is bound again."""
    moves = why in (_GONE, _NO_DRIVER, _NO_NETDEV, _NO_RDMA) or why.startswith((LOST, HELD_BY))
    return moves or vf_users.may_be_transient(why)


def _holder_without_assignment(index: int, address: str, context: PfContext) -> Reason | None:
    if address not in context.host.ledger:
        return None
    entry = context.host.ledger[address]
    if entry is None:
        return "its ledger entry cannot be read", 0
    assigned = context.cluster_facts.assigned
    # By all of its names, as the scheduler counts it: an assignment to a PF that was renamed since holds no VF there.
    if assigned is None or (entry.uid, context.pf, index, address) in assigned:
        return None
    return f"{HELD_BY}{entry.uid}", entry.reserved_mbps


def _not_given(address: str, context: PfContext) -> str | None:
    """Return why the CNI plugin gives no VF now; one that a pod has is not concerned."""
    faults = context.host.vf_faults
    if faults is None or not faults.unavailable or address in context.host.ledger:
        return None
    return f"the CNI plugin cannot give it: {faults.unavailable}"


def _misplaced(vf: Vf | None, address: str) -> str | None:
    if vf is None or not vf.exists or vf.address is None:
        return _GONE
    # Without its own address: equal reasons share one entry.
    return None if vf.address == address else "its PCI address does not match sriov_offset and sriov_stride"


def _held_wrongly(vf: Vf | None, address: str, context: PfContext) -> str | None:
    entry = context.host.ledger.get(address)
    if entry is None or not is_lost(vf, entry, context.host):
        return None
    return f"{LOST}on the host although pod {entry.uid} holds it"


def is_lost(vf: Vf | None, entry: LedgerEntry, host: Host) -> bool:
    """Return whether the host has a VF that the ledger says a pod of this boot holds."""
    if vf is None or entry.pci in host.unsettled or not should_be_away(entry, host):
        return False
    return vf.rdma_here and host.rdma_exclusive if entry.rdma_only or vf.lacks_netdev else vf.netdev


def should_be_away(entry: LedgerEntry, host: Host) -> bool:
    """Return whether a pod has the VF of an entry: after a reboot every VF is the host's until its entry is closed."""
    return entry.phase == "held" and entry.boot == host.boot


def still_held(host: Host) -> Mapping[str, LedgerEntry | None]:
    """Return the entries of the ledger whose VFs pods may have, by PCI address.

    Left out are those of an earlier boot, and those whose VF the host has: the driver of its PF was reloaded, and the
    VF that the pod had is gone.
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
    """Judge a VF that no pod holds: by its driver and devices, and by what the host does with them."""
    if vf is None or address in context.host.ledger or address in context.host.unsettled:
        return None
    if vf.driver is None:
        return _NO_DRIVER
    if user := vf_users.user_of(vf.devices, context.host.uses):
        return user
    # Without IPoIB an InfiniBand VF has only its RDMA device, which is all that is given away then.
    if not vf.netdev and not (context.link == "infiniband" and vf.lacks_netdev and vf.rdma):
        return _NO_NETDEV
    return None if vf.rdma else _NO_RDMA
