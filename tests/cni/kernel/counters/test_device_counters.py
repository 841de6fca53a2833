"""Counters of one PCI function in sysfs, read from trees of files as the kernel lays them out."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cni.kernel.counters.device_counters import (
    has_rdma_device,
    named_netdev_counters,
    netdev_counters,
    numa_node,
    rdma_counters,
)
from cni.plan.vf_counters import MOST_COUNTERS

PCI = "0000:04:00.5"
FUNCTION = Path("bus/pci/devices", PCI)


@pytest.fixture
def sysfs(tmp_path: Path) -> Iterator[int]:
    (tmp_path / FUNCTION).mkdir(parents=True)
    root = os.open(tmp_path, os.O_PATH)
    yield root
    os.close(root)


def put(root: Path, files: Mapping[str, object]) -> None:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{content}\n")


def test_a_netdev_that_was_made_on_another_is_not_the_vfs(sysfs: int, tmp_path: Path) -> None:
    """A pod may have any number of IPoIB's partitions under any name, and with lower indexes than the VF's netdev."""
    for name, index, sent in (("aaa", 9, 1), ("net1", 57, 2), ("zzz", 3, 3)):
        put(tmp_path / FUNCTION / "net" / name, {"ifindex": index, "iflink": 57, "statistics/tx_bytes": sent})
    assert netdev_counters(sysfs, PCI) == {"tx_bytes": 2}


def test_a_netdev_without_a_pci_function_is_found_by_its_name(sysfs: int, tmp_path: Path) -> None:
    """So it is on simulated hosts."""
    put(tmp_path, {"class/net/net1/statistics/rx_packets": 4, "class/net/net1/statistics/rx_errors": "garbage"})
    assert named_netdev_counters(sysfs, "net1") == {"rx_packets": 4}
    assert netdev_counters(sysfs, PCI) == {}


def test_port_and_hardware_counters_are_read_by_port(sysfs: int, tmp_path: Path) -> None:
    """All numbers that are there; "lifespan" is a setting, and what the driver refuses to tell is left out."""
    ports = tmp_path / FUNCTION / "infiniband/mlx5_3/ports"
    put(ports, {"1/counters/port_xmit_data": 2**64 - 1, "1/counters/symbol_error": "", "1/state": "4: ACTIVE"})
    put(ports, {"1/hw_counters/out_of_sequence": 7, "1/hw_counters/lifespan": 10, "2/hw_counters/x": 1})
    expected = {"1": {"port_xmit_data": 2**64 - 1}}, {"1": {"out_of_sequence": 7}, "2": {"x": 1}}
    assert rdma_counters(sysfs, PCI, "mlx5_3") == expected
    assert rdma_counters(sysfs, PCI, "renamed since") == expected
    assert has_rdma_device(sysfs, PCI)


def test_of_several_rdma_devices_only_the_vfs_own_is_read(sysfs: int, tmp_path: Path) -> None:
    """A pod may make a software device (rxe) on the netdev, which then lies below the same function."""
    for device, count in (("rxe0", 1), ("mlx5_3", 2)):
        put(tmp_path / FUNCTION / "infiniband" / device, {"ports/1/hw_counters/x": count})
    assert rdma_counters(sysfs, PCI, "mlx5_3") == ({}, {"1": {"x": 2}})
    assert rdma_counters(sysfs, PCI, "other") == ({}, {})


def test_a_function_without_devices_has_no_counters(sysfs: int) -> None:
    """They are in another namespace, or there are none."""
    assert (netdev_counters(sysfs, PCI), rdma_counters(sysfs, PCI, None)) == ({}, ({}, {}))
    assert not has_rdma_device(sysfs, PCI)


def test_however_much_a_pod_makes_is_read_up_to_a_bound(sysfs: int, tmp_path: Path) -> None:
    """Hundreds of netdevs, of counters, and a counter without an end."""
    for number in range(200):
        put(tmp_path / FUNCTION / "net" / f"d{number}", {"ifindex": number, "statistics/tx_bytes": 1})
        put(tmp_path / FUNCTION / "infiniband/d/ports/1/hw_counters", {f"c{number}": 1})
    put(tmp_path / FUNCTION / "infiniband/d/ports/1/counters", {"endless": "9" * 1_000_000, "n\n": 1, "n" * 65: 1})
    assert netdev_counters(sysfs, PCI) == {"tx_bytes": 1}
    ports, hardware = rdma_counters(sysfs, PCI, "d")
    assert len(hardware["1"]) == MOST_COUNTERS
    assert all(len(str(value)) <= 24 for counts in ports.values() for value in counts.values())
    assert ports.get("1", {}).keys() <= {"endless"}


@pytest.mark.parametrize(("text", "node"), [("1", "1"), ("-1", ""), ("", "")])
def test_a_numa_node_that_is_not_told_is_empty(sysfs: int, tmp_path: Path, text: str, node: str) -> None:
    """As the SR-IOV metrics exporter has it."""
    put(tmp_path / FUNCTION, {"numa_node": text})
    assert numa_node(sysfs, PCI) == node
