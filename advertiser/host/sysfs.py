"""Read SR-IOV devices from a sysfs tree, even if it is incomplete: unreadable values are None.

Uses no vendor's tools or layouts. RDMA devices are found below their PCI function, which works for inbox and MOFED
drivers and for any name that udev gives. While a VF's RDMA device is in another network namespace (exclusive mode), the
VF's ``infiniband/`` is empty, but its ``infiniband_verbs/`` is not.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from advertiser.inventory.facts import Netdev, PciFunction, RdmaDevice, RdmaPort, Text, Vf
from mooring.nic import vf_settings_sysfs
from mooring.nic.function_devices import all_netdevs, is_child, names_in, own_netdevs, own_rdma_devices
from mooring.nic.pci import is_address

# An attribute is at most a page (Documentation/filesystems/sysfs.rst).
_PAGE = 4096
_VIRTFN = "virtfn"
_Read = TypeVar("_Read")
# How often the devices of a function are read again after one was renamed during the read.
_RENAMED_AT_MOST = 5
# PCI_BASE_CLASS_NETWORK in include/linux/pci_ids.h: Ethernet, InfiniBand and other network controllers. GPUs, NVMe
# drives and accelerators have VFs too. A function of another class is a NIC if it has an RDMA device (Alibaba's eRDMA).
_NETWORK_CLASS = "0x02"
_RDMA_FOLDERS = ("infiniband", "infiniband_verbs")
# Y where all network namespaces share the RDMA devices (ib_devices_shared_netns in drivers/infiniband/core/device.c).
NETNS_MODE = Path("module/ib_core/parameters/netns_mode")


class SysfsError(OSError):
    """The tree has no PCI bus."""


def read_functions(root: Path) -> tuple[PciFunction, ...]:
    """Return every NIC, ordered by address, except this machine's own VFs; raise SysfsError without a PCI bus."""
    devices = root / "bus" / "pci" / "devices"
    try:
        addresses = sorted(path.name for path in devices.iterdir() if is_address(path.name))
    except OSError as unreadable:
        raise SysfsError(f"{str(devices)!r} cannot be read: {unreadable.strerror}") from unreadable
    return tuple(_function(devices / address) for address in addresses if _is_nic(devices / address))


def _is_nic(folder: Path) -> bool:
    # This machine's own VFs are read with their PFs.
    if link_target(folder / "physfn") is not None:
        return False
    kind = read_attribute(folder / "class")
    if kind is None:
        return _has_sriov(folder)
    return kind.startswith(_NETWORK_CLASS) or any(list_entries(folder / name) for name in _RDMA_FOLDERS)


def _has_sriov(folder: Path) -> bool:
    return _exists(folder / "sriov_totalvfs") or _exists(folder / "sriov_numvfs")


def _function(folder: Path) -> PciFunction:
    return PciFunction(
        address=folder.name,
        sriov=_has_sriov(folder),
        totalvfs=read_attribute(folder / "sriov_totalvfs"),
        numvfs=read_attribute(folder / "sriov_numvfs"),
        offset=read_attribute(folder / "sriov_offset"),
        stride=read_attribute(folder / "sriov_stride"),
        driver=link_target(folder / "driver"),
        vendor=read_attribute(folder / "vendor"),
        device=read_attribute(folder / "device"),
        numa_node=read_attribute(folder / "numa_node"),
        path=bridges_above(folder),
        netdevs=_read_each(folder / "net", _netdev),
        rdma=_own_rdma(folder, _rdma_device),
        vfs=_vfs(folder),
        vf_settings=_exists(folder / vf_settings_sysfs.FOLDER),
    )


def _read_each(folder: Path, read: Callable[[Path], _Read]) -> tuple[_Read, ...]:
    """Read the devices of one class below a function; read again if one disappeared during the read.

    udev renames netdevs and RDMA devices milliseconds after they appear, so a read under the old name is incomplete.
    """
    found: tuple[_Read, ...] = ()
    for _ in range(_RENAMED_AT_MOST):
        devices = list_entries(folder)
        found = tuple(read(device) for device in devices)
        if all(_exists(device) for device in devices):
            break
    return found


def _own_rdma(function: Path, read: Callable[[Path], _Read]) -> tuple[_Read, ...]:
    """Read a function's RDMA devices as `_read_each`, without sub-devices."""
    devices = dict(_read_each(function / "infiniband", lambda device: (device.name, read(device))))
    own = own_rdma_devices(function) if len(devices) > 1 else devices
    return tuple(device for name, device in devices.items() if name in own)


def bridges_above(folder: Path) -> tuple[str, ...]:
    """Return the PCI bridges above a function, from the root down, by its real path in sysfs."""
    try:
        parts = folder.resolve().parts
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        return ()
    return tuple(part for part in parts[:-1] if is_address(part))


def _netdev(folder: Path) -> Netdev:
    return Netdev(
        name=folder.name,
        type=read_attribute(folder / "type"),
        speed=read_attribute(folder / "speed"),
        operstate=read_attribute(folder / "operstate"),
        carrier=read_attribute(folder / "carrier"),
        dev_port=read_attribute(folder / "dev_port"),
        phys_port_name=read_attribute(folder / "phys_port_name"),
        phys_switch_id=read_attribute(folder / "phys_switch_id"),
        bonded=_exists(folder / "bonding_slave"),
        child=is_child(folder),
    )


def _rdma_device(folder: Path) -> RdmaDevice:
    ports = (
        RdmaPort(*(read_attribute(port / name) for name in ("rate", "state", "link_layer")))
        for port in list_entries(folder / "ports")
    )
    guids = (read_attribute(folder / name) for name in ("sys_image_guid", "node_guid"))
    return RdmaDevice(folder.name, tuple(ports), *guids)


def _vfs(pf: Path) -> Mapping[int, Vf]:
    return {int(link.name[len(_VIRTFN) :]): _vf(link) for link in _virtfns(pf)}


def _virtfns(pf: Path) -> Iterator[Path]:
    for path in list_entries(pf):
        number = path.name.removeprefix(_VIRTFN)
        if number != path.name and number.isascii() and number.isdigit() and len(number) <= 5:
            yield path


def _vf(link: Path) -> Vf:
    address = link_target(link)
    if address is None or not is_address(address):
        return Vf(None)
    guids = dict(_own_rdma(link, lambda device: (device.name, read_attribute(device / "node_guid"))))
    return Vf(
        address=address,
        exists=_exists(link),
        driver=link_target(link / "driver"),
        netdev=bool(own_netdevs(link)),
        rdma=bool(guids) or bool(list_entries(link / "infiniband_verbs")),
        rdma_here=bool(guids),
        node_guid=next(iter(guids.values()), None),
        # A netdev in another network namespace leaves an empty folder here.
        lacks_netdev=not _exists(link / "net"),
        netdevs=all_netdevs(link),
        rdma_names=tuple(names_in(link / "infiniband")),
    )


def read_attribute(path: Path) -> Text:
    """Return a stripped attribute; None if it cannot be read, often with EINVAL."""
    try:
        with path.open("rb") as file:
            return file.read(_PAGE).decode(errors="replace").strip()
    except OSError:
        return None


def link_target(link: Path) -> str | None:
    """Return the name of a symbolic link's target."""
    try:
        return link.readlink().name or None
    except OSError:
        return None


def list_entries(folder: Path) -> list[Path]:
    """Return a folder's entries, sorted by name; empty if it cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
