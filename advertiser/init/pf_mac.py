"""The MAC of a PF from which its VFs' addresses are derived: the one that no program can change.

The present MAC is another one while the PF is a port of a bond or team: all ports have the same (bond_enslave in
drivers/net/bonding/bond_main.c), and so VF n of each PF would get the same address. The kernel keeps the first one of a
netdev as its permanent address (register_netdevice in net/core/dev.c), and reports it since Linux 5.6.
"""

from pathlib import Path
from typing import Protocol

from advertiser.inventory.init_plan import ForbiddenError
from mooring.files import read_file


class PermanentAddresses(Protocol):
    """Reads the permanent address of a PF's netdev, None if the kernel reports none; raises OSError."""

    def permanent_address(self, pf: str) -> str | None: ...


def pf_mac(device: Path, pf: str, addresses: PermanentAddresses) -> str:
    """Return a PF's own MAC; ``device`` is its PCI function's folder in sysfs. Raise ForbiddenError or OSError."""
    permanent = addresses.permanent_address(pf)
    if permanent is not None:
        return permanent
    netdev = device / "net" / pf
    if (netdev / "master").exists() or (netdev / "bonding_slave").exists():
        why = "the PF is a port of a bond or bridge, and the kernel does not report its permanent MAC"
        raise ForbiddenError(f"{pf}: {why}, from which its VFs' MACs are derived: run init before the bond is made")
    mac = (read_file(netdev / "address") or "").strip()
    if not mac:
        raise ForbiddenError(f"{pf}: {str(netdev / 'address')!r} cannot be read, and its VFs' addresses derive from it")
    return mac
