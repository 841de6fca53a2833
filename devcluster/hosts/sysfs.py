"""The sysfs tree of a simulated host, as the inbox mlx5 driver and the PCI and RDMA cores show it, in plain files.

Only reading works: a write to ``sriov_numvfs`` makes no VF. Sources: Documentation/ABI/testing/sysfs-bus-pci and
ABI/stable/sysfs-class-infiniband; drivers/pci/iov.c (a VF is its PF's sibling below the same bridge, on the bus of its
routing id); drivers/infiniband/core/sysfs.c (rate_show), uverbs_main.c and user_mad.c (32 and 64 fixed minors of major
231, a dynamic major for what follows). A VF's node GUID is what it read when its driver was bound.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from devcluster.hosts.netdevs import Netdev, guid, link, show, system_image_guid
from devcluster.hosts.nic import Function, Host

# Width and speed by which the RDMA core describes a line rate in Mb/s.
_RATES = {
    10_000: "10 Gb/sec (1X QDR)",
    25_000: "25 Gb/sec (1X EDR)",
    40_000: "40 Gb/sec (4X QDR)",
    50_000: "50 Gb/sec (1X HDR)",
    56_000: "56 Gb/sec (4X FDR)",
    100_000: "100 Gb/sec (4X EDR)",
    200_000: "200 Gb/sec (4X HDR)",
    400_000: "400 Gb/sec (4X NDR)",
}
_MAJOR, _UMAD, _ISSM, _UVERBS = 231, 0, 64, 192
_FIXED_UMAD, _FIXED_UVERBS = 64, 32
# Where alloc_chrdev_region starts to look for a free major; uverbs requests one first, then umad and issm.
_DYNAMIC = {"uverbs": 511, "umad": 510, "issm": 509}
Node = Literal["uverbs", "umad", "issm"]


@dataclass(frozen=True, slots=True)
class Tree:
    """Where things stand in a tree at ``root``."""

    root: Path

    def folder(self, function: Function) -> Path:
        bridges = [f"pci{function.pf.pcie[0][:7]}", *function.pf.pcie]
        return self.root.joinpath("devices", *bridges, function.pci)


def build(root: Path, host: Host, *, admin_macs: bool = False) -> None:
    """Build a host's whole tree at ``root``: every VF bound to its driver, its netdev present and down.

    ``admin_macs`` is as in `devcluster.hosts.vftable.VfTable.reset`.
    """
    tree = Tree(root)
    for name in ("net", "infiniband", "infiniband_verbs", "infiniband_mad"):
        (root / "class" / name).mkdir(parents=True, exist_ok=True)
    write(root / "class" / "infiniband_verbs", {"abi_version": "6"})
    write(root / "class" / "infiniband_mad", {"abi_version": "5"})
    for pf in host.pfs:
        for driver in (pf.personality.driver, pf.personality.vf_driver):
            write(root / "bus" / "pci" / "drivers" / driver, {"bind": "", "unbind": "", "new_id": ""})
        _add_bridges(tree, pf.pcie, pf.numa)
    for ifindex, function in enumerate(host.functions(), start=2):
        _add_function(tree, function, _node_guid(function, admin_macs=admin_macs))
        up = function.vf is None
        show(root, tree.folder(function), function, Netdev(function.netdev, ifindex, function.mac, up=up))


def device_number(kind: Node, number: int) -> tuple[int, int]:
    """Return major and minor of /dev/infiniband/<kind><number>."""
    base, fixed = {"uverbs": (_UVERBS, _FIXED_UVERBS), "umad": (_UMAD, _FIXED_UMAD), "issm": (_ISSM, _FIXED_UMAD)}[kind]
    return (_MAJOR, base + number) if number < fixed else (_DYNAMIC[kind], number - fixed)


def write(folder: Path, attributes: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in attributes.items():
        (folder / name).write_text(f"{text}\n")


def add_function(root: Path, address: str, pcie: tuple[str, ...], driver: str, attributes: Mapping[str, str]) -> None:
    """Add a PCI function that is no NIC, below its bridges, bound to its driver."""
    tree = Tree(root)
    _add_bridges(tree, pcie, int(attributes["numa_node"]))
    folder = root.joinpath("devices", f"pci{pcie[0][:7]}", *pcie, address)
    write(folder, attributes)
    _register(tree, folder, driver)


def _add_bridges(tree: Tree, pcie: tuple[str, ...], numa: int) -> None:
    folder = tree.root / "devices" / f"pci{pcie[0][:7]}"
    for address in pcie:
        folder = folder / address
        if not folder.exists():
            write(folder, {"vendor": "0x8086", "device": "0x6f04", "class": "0x060400", "numa_node": str(numa)})
            _register(tree, folder, "pcieport")


def _register(tree: Tree, folder: Path, driver: str) -> None:
    """Link a PCI function on its bus and below its driver."""
    bus = tree.root / "bus" / "pci"
    drivers = bus / "drivers" / driver
    drivers.mkdir(parents=True, exist_ok=True)
    link(bus / "devices" / folder.name, folder)
    link(drivers / folder.name, folder)
    link(folder / "driver", drivers)
    link(folder / "subsystem", bus)


def _node_guid(function: Function, *, admin_macs: bool) -> str:
    if function.vf is None:
        return guid(function.mac)
    nic = function.pf.personality
    fresh = nic.fresh(function.vf, function.mac)
    if admin_macs:
        fresh.mac = function.mac if function.pf.link == "ethernet" else fresh.mac
        fresh.guid = function.admin_guid
    return nic.node_guid(fresh, function.mac)


def _add_function(tree: Tree, function: Function, node_guid: str) -> None:
    folder, pf = tree.folder(function), function.pf
    nic = pf.personality
    device, driver = (nic.device, nic.driver) if function.vf is None else (nic.vf_device, nic.vf_driver)
    identity = f"{nic.vendor[2:].upper()}:{device[2:].upper()}"
    write(
        folder,
        {
            "vendor": nic.vendor,
            "device": device,
            "subsystem_vendor": nic.vendor,
            "subsystem_device": "0x0016",
            "class": "0x020000" if pf.link == "ethernet" else "0x020700",
            "revision": "0x00",
            "numa_node": str(pf.numa),
            "driver_override": "(null)",
            "enable": "1",
            "uevent": f"DRIVER={driver}\nPCI_ID={identity}\nPCI_SLOT_NAME={function.pci}",
        },
    )
    _register(tree, folder, driver)
    if function.vf is None:
        _add_sriov(folder, function)
    else:
        pf_folder = folder.parent / pf.pci
        link(folder / "physfn", pf_folder)
        link(pf_folder / f"virtfn{function.vf}", folder)
    if function.has_rdma:
        add_rdma(tree, function, node_guid)


def _add_sriov(folder: Path, function: Function) -> None:
    pf = function.pf
    write(
        folder,
        {
            "sriov_totalvfs": str(pf.total),
            "sriov_numvfs": str(pf.vfs),
            "sriov_offset": str(pf.offset),
            "sriov_stride": str(pf.stride),
            "sriov_vf_device": pf.personality.vf_device[2:],
            "sriov_drivers_autoprobe": "1",
            "sriov_vf_total_msix": "0",
            "max_link_speed": "16.0 GT/s PCIe",
            "max_link_width": "16",
            "current_link_speed": "16.0 GT/s PCIe",
            "current_link_width": "16",
        },
    )


def remove_rdma(tree: Tree, function: Function) -> None:
    """Remove a function's RDMA device, as the end of its driver does."""
    for name in ("infiniband", "infiniband_verbs", "infiniband_mad"):
        folder = tree.folder(function) / name
        for device in folder.iterdir():
            (tree.root / "class" / name / device.name).unlink()
        shutil.rmtree(folder)


def add_rdma(tree: Tree, function: Function, node_guid: str) -> None:
    """Add a function's RDMA device, as its driver does at probe."""
    folder = tree.folder(function)
    device = folder / "infiniband" / function.rdma
    write(
        device,
        {
            "node_guid": node_guid,
            "sys_image_guid": system_image_guid(function.mac),
            "node_type": "1: CA",
            "node_desc": function.rdma,
            "fw_ver": "22.35.1012",
            "hca_type": "MT4125" if function.vf is None else "MT4126",
            "hw_rev": "0",
            "board_id": "MT_0000000359",
        },
    )
    link(device / "device", folder)
    _add_port(device / "ports" / "1", function)
    _publish(tree, "infiniband", device)
    _add_node(tree, folder, "infiniband_verbs", function, "uverbs", {"abi_version": "1"})
    _add_node(tree, folder, "infiniband_mad", function, "umad", {"port": "1"})
    _add_node(tree, folder, "infiniband_mad", function, "issm", {"port": "1"})


def _add_port(port: Path, function: Function) -> None:
    pf = function.pf
    rate = _RATES.get(pf.mbps)
    if rate is None:
        raise ValueError(f"pf {pf.name!r}: {pf.mbps!r} Mb/s is not one of {', '.join(map(str, _RATES))}")
    write(
        port,
        {
            "rate": rate,
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "link_layer": "Ethernet" if pf.link == "ethernet" else "InfiniBand",
            "lid": "0x0",
            "lid_mask_count": "0",
            "sm_lid": "0x0",
            "sm_sl": "0",
            "cap_mask": "0x04010000",
        },
    )


def _add_node(
    tree: Tree, folder: Path, class_name: str, function: Function, kind: Node, more: Mapping[str, str]
) -> None:
    major, minor = device_number(kind, function.number)
    node = folder / class_name / f"{kind}{function.number}"
    write(node, {"dev": f"{major}:{minor}", "ibdev": function.rdma, **more})
    link(node / "device", folder)
    _publish(tree, class_name, node)


def _publish(tree: Tree, class_name: str, device: Path) -> None:
    link(device / "subsystem", tree.root / "class" / class_name)
    link(tree.root / "class" / class_name / device.name, device)
