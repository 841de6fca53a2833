"""Decide whether a VF may be taken for the test: only one that nobody uses."""

from collections.abc import Sequence
from dataclasses import dataclass

# Drivers that pass a function to user space or to a virtual machine, beside those with vfio in their name.
_USER_SPACE = frozenset({"uio_pci_generic", "igb_uio", "pci-stub", "pciback", "xen-pciback"})


@dataclass(frozen=True, slots=True)
class VfUse:
    """What a host knows about the use of a VF.

    ``entered``: it has a ledger entry, readable or not; ``recorded``: a pod record names it. ``up`` and ``addresses``
    are its netdev's, without link-local ones; ``upper`` are devices above it: bridges, bonds, macvlans. ``out``: why
    the advertiser does not offer it. ``users`` are processes on its RDMA device, None if the driver does not tell.
    """

    index: int
    pci: str
    driver: str | None
    netdev: str | None
    entered: bool = False
    recorded: bool = False
    up: bool = False
    addresses: tuple[str, ...] = ()
    upper: tuple[str, ...] = ()
    out: str | None = None
    users: int | None = 0


def why_in_use(vf: VfUse) -> str | None:
    """Return why a VF is not to be taken, None if nobody uses it; where something is unknown, it is in use."""
    reasons = {
        "the ledger has an entry": vf.entered,
        "a pod record names it": vf.recorded,
        f"its driver is {vf.driver}": vf.driver is None or "vfio" in vf.driver or vf.driver in _USER_SPACE,
        "its netdev has addresses": bool(vf.addresses),
        f"{', '.join(vf.upper)} uses its netdev": bool(vf.upper),
        "the users of its RDMA device are not known": vf.users is None,
        "processes use its RDMA device": bool(vf.users),
        # Among these is what else the host uses it for.
        vf.out or "": vf.out is not None,
    }
    return next((why for why, holds in reasons.items() if holds), None)


def choose(vfs: Sequence[VfUse], count: int) -> tuple[VfUse, ...]:
    """Return the last ``count`` VFs that nobody uses, or fewer; pods take the first ones first."""
    free = [vf for vf in vfs if why_in_use(vf) is None]
    return tuple(free[-count:])
