"""Judge one VF: may it be given away now, and if not, why, and what rate does somebody still hold on it."""

from dataclasses import dataclass

from advertiser.inventory.facts import Claims, Host, Vf
from mooring.inventory import HELD_BY
from mooring.ledger import LedgerEntry
from mooring.pci import vf_address

# Drivers that hand a function to user space or to a virtual machine; variants are called mlx5_vfio_pci and the like.
_USER_SPACE = frozenset({"uio_pci_generic", "igb_uio", "pci-stub", "pciback", "xen-pciback"})
_LONGEST_WHY = 200
# How the reason of a VF begins that a pod holds and the host has.
LOST = "lost: "

Reason = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Expected:
    """Where a PF's VFs must lie: every reader of the inventory computes their addresses from these."""

    vf0: str
    stride: int
    vfs: int


@dataclass(frozen=True, slots=True)
class Setting:
    """What holds for all VFs of the PF ``pf``; ``obstacle`` rules them all out."""

    host: Host
    claims: Claims
    pf: str
    obstacle: str | None = None


def reasons_out(index: int, vf: Vf | None, expected: Expected, setting: Setting) -> Reason | None:
    """Return why VF ``index`` is not to be used now and the min rate in Mb/s that it holds; None if it may be used.

    That somebody holds it by an assignment is no reason: use is derived from assignments, and a VF in a pod is as it
    should be without its netdev.
    """
    address = vf_address(expected.vf0, expected.stride, index)
    held = _unexplained_holder(index, address, setting)
    if held is not None:
        return held
    why = setting.obstacle or _misplaced(vf, address) or _held_wrongly(vf, address, setting)
    why = why or _drained(index, setting) or _unfit(vf, address, setting)
    return None if why is None else (why[:_LONGEST_WHY], 0)


def _unexplained_holder(index: int, address: str, setting: Setting) -> Reason | None:
    if address not in setting.host.ledger:
        return None
    entry = setting.host.ledger[address]
    if entry is None:
        return "its ledger entry cannot be read", 0
    explained = setting.claims.explained
    # By all of its names, as the scheduler counts it: an assignment to a PF that was renamed since holds nothing there.
    if explained is None or (entry.uid, setting.pf, index, address) in explained:
        return None
    return f"{HELD_BY}{entry.uid}", entry.set.min_tx_rate or 0


def _misplaced(vf: Vf | None, address: str) -> str | None:
    if vf is None or not vf.exists or vf.address is None:
        return "the VF is gone"
    # Without its own address: equal reasons share one entry.
    return None if vf.address == address else "does not lie where offset and stride say"


def _held_wrongly(vf: Vf | None, address: str, setting: Setting) -> str | None:
    entry = setting.host.ledger.get(address)
    if vf is None or entry is None or address in setting.host.unsettled:
        return None
    return f"{LOST}in the host, yet held by pod {entry.uid}" if vf.netdev and _should_be_away(entry, setting) else None


def _should_be_away(entry: LedgerEntry, setting: Setting) -> bool:
    # After a reboot every VF is back in the host until its entry is closed.
    return entry.phase == "held" and entry.boot == setting.host.boot


def _drained(index: int, setting: Setting) -> str | None:
    return "drained" if {setting.pf, f"{setting.pf}/{index}"} & setting.claims.drained else None


def _unfit(vf: Vf | None, address: str, setting: Setting) -> str | None:
    """Judge a VF that nobody holds by its driver and devices."""
    if vf is None or address in setting.host.ledger or address in setting.host.unsettled:
        return None
    if vf.driver is None:
        return "no driver"
    if "vfio" in vf.driver or vf.driver in _USER_SPACE:
        return f"bound to {vf.driver}"
    if not vf.netdev:
        return "no netdev in the host's network namespace"
    return None if vf.rdma else "no RDMA device"
