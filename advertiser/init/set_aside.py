"""Mark the VFs that are set aside for the host, so that the host's udev rules configure them.

Each such VF has a file below the state folder, named by PCI address: udev can test whether a file exists, but not read
it. VFs are marked before they are created. For netdevs that already exist, a uevent makes udev apply its rules again.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from advertiser.inventory import port
from advertiser.inventory.facts import Host, PciFunction
from mooring.files import make_folder
from mooring.folders import record_names
from mooring.indexes import LAST
from mooring.nic.pci import is_address, vf_address
from mooring.records.node_offer import SET_ASIDE_FOLDER, PfOffer


def mark_set_aside(state: Path, sysfs: Path, host: Host, offers: Mapping[str, PfOffer]) -> None:
    """Mark the VFs that ``offers`` sets aside, and all VFs of PFs that are not in it; raise OSError."""
    folder = state / SET_ASIDE_FOLDER
    wanted = {pci for function in host.functions for pci in _set_aside(function, offers.get(function.address))}
    present = set(record_names(folder, is_address))
    if wanted and not folder.is_dir():
        make_folder(folder, 0o755)
    for pci in wanted - present:
        (folder / pci).touch()
    for pci in present - wanted:
        (folder / pci).unlink(missing_ok=True)
    for pci in wanted ^ present:
        _announce(sysfs / "bus/pci/devices" / pci)


def _set_aside(function: PciFunction, offer: PfOffer | None) -> Iterator[str]:
    for index, pci in _addresses(function):
        if offer is None or index in offer.set_aside:
            yield pci


def _addresses(function: PciFunction) -> Iterator[tuple[int, str]]:
    """Yield index and PCI address of each VF that a PF has or can have, if it reports offset and stride."""
    for index, vf in function.vfs.items():
        if vf.address is not None:
            yield index, vf.address
    facts = (function.totalvfs, function.offset, function.stride)
    total, offset, stride = (port.number(text, LAST) for text in facts)
    if total is None or offset is None or stride is None:
        return
    with contextlib.suppress(ValueError):  # The addresses go beyond the last bus.
        for index in range(total):
            if index not in function.vfs:
                yield index, vf_address(vf_address(function.address, 1, offset), stride, index)


def _announce(function: Path) -> None:
    """Make udev apply its rules to a VF's netdevs again (Documentation/ABI/testing/sysfs-uevent)."""
    for uevent in function.glob("net/*/uevent"):
        with contextlib.suppress(OSError):
            uevent.write_text("change")
