"""PFs and VFs with several devices below one PCI function: the inventory is about the function's own."""

import shutil
from pathlib import Path

from advertiser.host.read_host import Roots, read_host
from advertiser.inventory.build_inventory import build_inventory
from advertiser.inventory.facts import ClusterFacts
from advertiser.inventory.offer import EVERYTHING
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from mooring.annotations.inventory import Inventory

PF, VF = "0000:04:00.0", "0000:04:00.1"


def infiniband(root: Path) -> Path:
    """Build a host with one InfiniBand PF and two VFs; return where its PCI functions are."""
    host = describe_host("n1", 1, pfs=1, vfs=2, nics=["mlx5-infiniband"])
    build(root / "sys", host)
    return root / "sys/bus/pci/devices"


def inventory(root: Path) -> Inventory:
    found = read_host(Roots(root / "sys", root / "state", root / "run"))
    return build_inventory(found, EVERYTHING, ClusterFacts(), "n1").inventory


def add_smi_device(functions: Path, ports: int = 4) -> None:
    """Add the sub-device of a PF whose port has several planes: one port a plane, no uverbs (mlx5_ib_add_sub_dev)."""
    (device,) = (functions / PF / "infiniband").iterdir()
    sub = device.with_name("a_smi")
    shutil.copytree(device, sub, symlinks=True)
    for port in range(2, ports + 1):
        shutil.copytree(sub / "ports/1", sub / f"ports/{port}")


def test_a_pf_with_a_sub_device_is_offered_by_its_own(tmp_path: Path) -> None:
    functions = infiniband(tmp_path)
    before = inventory(tmp_path)
    add_smi_device(functions)
    assert inventory(tmp_path) == before
    assert [str(pf.usable) for pf in before.pfs] == ["0-1"]


def test_a_child_that_stays_on_the_host_is_not_its_vfs_netdev(tmp_path: Path) -> None:
    """The VF's own is away: a child alone does not make it one that the host has."""
    functions = infiniband(tmp_path)
    (netdev,) = (functions / VF / "net").iterdir()
    child = netdev.with_name("ib0.8001")
    netdev.rename(child)
    (child / "iflink").write_text("57\n")
    (pf,) = inventory(tmp_path).pfs
    assert [(str(out.vfs), out.why) for out in pf.out] == [("0", "no netdev in the host's network namespace")]
