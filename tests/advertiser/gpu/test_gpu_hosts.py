"""Whole hosts with GPUs, rebuilt from public listings: what is on offer, with which links, below which bridges."""

from collections.abc import Callable
from pathlib import Path

import pytest

from advertiser.host.sysfs import read_functions
from mooring.gpu.inventory import GpuInventory, common_bridges, dump_gpu_inventory, read_gpu_inventory
from tests.advertiser.gpu.trees import HOSTS, Host, build_host, load_host, uuid_of

MakeHost = Callable[[str], Host]


@pytest.fixture(params=HOSTS, ids=lambda path: path.stem)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    """Each host in turn."""
    return build_host(tmp_path, load_host(request.param.stem))


def test_every_gpu_is_on_offer_with_what_its_sources_say(host: Host) -> None:
    """By PCI address and UUID, with model, memory, NUMA node and bridges; and the annotation says the same again.

    Linux shows -1 where a device has no NUMA node.
    """
    found = host.sources().inventory("n1")
    assert found.out == ()
    assert [gpu.pci for gpu in found.gpus] == sorted(host.gpus)
    for index, gpu in enumerate(sorted(host.layout["gpus"], key=lambda gpu: str(gpu["pci"]))):
        (read,) = (one for one in found.gpus if one.pci == gpu["pci"])
        assert read.pcie == tuple(gpu["under"])
        assert read.numa == (None if gpu["numa"] < 0 else gpu["numa"])
        assert read.uuid == uuid_of(host.layout, host.gpus.index(gpu["pci"])), index
        assert read.memory_mb == _memory(host)
    assert read_gpu_inventory(dump_gpu_inventory(found)) == found


def _memory(host: Host) -> int | None:
    """Return what should be told: NVIDIA's memory only where the library is."""
    if "amd" in host.layout:
        return int(host.layout["amd"]["memory_mib"])
    return None if host.nvml is None else int(host.layout["nvidia"]["memory_mib"])


def test_links_group_what_is_joined(host: Host) -> None:
    """By NVSwitch or xGMI all; in the cube mesh of a DGX-1 the two quads; else what the operator's file says."""
    found = host.sources().inventory("n1")
    expected = [sorted(host.gpus[index] for index in group) for group in host.layout["links"]]
    assert _groups(found) == sorted(expected)


def _groups(found: GpuInventory) -> list[list[str]]:
    groups: dict[int, list[str]] = {}
    for gpu in found.gpus:
        if gpu.link is not None:
            groups.setdefault(gpu.link, []).append(gpu.pci)
    return sorted(groups.values())


def test_the_lowest_common_bridge_shows_which_nic_is_beside_which_gpu(host: Host) -> None:
    """Both paths are read in the same way; a GPU of a socket without a NIC shares no bridge with any."""
    nics = {one.address: one.path for one in read_functions(host.sysfs)}
    assert set(nics) == {nic["pci"] for nic in host.layout["nics"]}
    for gpu in host.sources().inventory("n1").gpus:
        depths = {address: common_bridges(gpu.pcie, path) for address, path in nics.items()}
        deepest = max(depths.values(), default=0)
        expected = host.layout["beside"].get(gpu.pci)
        if expected is None:
            assert deepest == 0
        else:
            assert gpu.pcie[deepest - 1] == expected["bridge"]
            assert sorted(pci for pci, depth in depths.items() if depth == deepest) == sorted(expected["nics"])


def test_two_levels_from_the_root_would_be_wrong(make_host: MakeHost) -> None:
    """Of a DGX A100's GPUs every second one has a nearer NIC than that rule finds: the listing shows a cascade."""
    host = make_host("dgx-a100")
    nics = {one.address: one.path for one in read_functions(host.sysfs)}
    wrong = [
        gpu.pci
        for gpu in host.sources().inventory("n1").gpus
        if sorted(pci for pci, path in nics.items() if path[:2] == gpu.pcie[:2])
        != sorted(host.layout["beside"][gpu.pci]["nics"])
    ]
    assert len(wrong) == 4
