"""A VF's own devices, as a call finds them, beside others that a pod has made below the same PCI function."""

from pathlib import Path

import pytest

from cni.kernel.sysfs import Sysfs
from cni.spec.skel import CniError
from mooring.annotations.assignment import AssignedVf

PCI = "0000:3b:01.0"


def put(function: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (function / name).parent.mkdir(parents=True, exist_ok=True)
        (function / name).write_text(f"{text}\n")


def test_the_netdev_of_a_vf_is_not_an_ipoib_child_with_a_lower_index(tmp_path: Path) -> None:
    netdevs = {"net/net1/ifindex": "57", "net/net1/iflink": "57", "net/a/ifindex": "3", "net/a/iflink": "57"}
    put(tmp_path / "bus/pci/devices" / PCI, netdevs)
    assert Sysfs(tmp_path).netdev(PCI) == 57


def test_the_node_guid_of_a_vf_is_that_of_its_own_rdma_device(tmp_path: Path) -> None:
    """A sub-device has no uverbs device (ib_uverbs_add_one), and is counted nowhere."""
    devices = {"infiniband/a/node_guid": "0:0:0:1", "infiniband/mlx5_2/node_guid": "0:0:0:2"}
    verbs = {"infiniband_verbs/uverbs2/ibdev": "mlx5_2", "infiniband_verbs/uverbs2/dev": "231:194"}
    put(tmp_path / "bus/pci/devices" / PCI, devices | verbs)
    sysfs = Sysfs(tmp_path)
    assert (sysfs.node_guid(PCI), sysfs.rdma(PCI), sysfs.rdma_devices(PCI)) == ("0:0:0:2", "mlx5_2", 1)


def test_of_two_uverbs_devices_the_lower_number_is_first(tmp_path: Path) -> None:
    """A pod made the other one in software, later."""
    verbs = {"infiniband_verbs/uverbs9/ibdev": "mlx5_9", "infiniband_verbs/uverbs10/ibdev": "siw0"}
    put(tmp_path / "bus/pci/devices" / PCI, verbs)
    assert (Sysfs(tmp_path).rdma(PCI), Sysfs(tmp_path).rdma_devices(PCI)) == ("mlx5_9", 2)


def test_an_assignment_to_a_renamed_pf_is_refused_with_its_present_name(tmp_path: Path) -> None:
    """As after an upgrade of the kernel, which names ports `np0`."""
    devices = tmp_path / "bus/pci/devices"
    put(devices / "0000:3b:00.0", {"net/enp59s0f0np0/ifindex": "4"})
    (devices / PCI).mkdir()
    (devices / PCI / "physfn").symlink_to("../0000:3b:00.0")
    (devices / "0000:3b:00.0/virtfn0").symlink_to(f"../{PCI}")
    with pytest.raises(CniError, match="vf 0 of pf 'enp59s0f0': its pf is now named 'enp59s0f0np0'"):
        Sysfs(tmp_path).pf_pci(AssignedVf("enp59s0f0", 0, PCI, "ethernet", "default"))
