"""Extended resources that count what pods hold: the amounts, a reboot, a kubelet that restarts."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from advertiser.formats.extended_resources import HeldVf, counted_resources, quantity, read_quantity
from cni.server.extracts import make_folders, show_recorded_pods
from cri_shim.records import Records
from devcluster.apiserver.serve import ApiServer, Options
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.inventory import Inventory, Out, Pf
from mooring.indexes import Indexes
from mooring.nic.settings import VfSettings
from mooring.records.pod_record import PodRecord
from tests.advertiser.program import advertising
from tests.advertiser.published import NODE, node_when

VFS, MBPS = "rdma-sriov/vf", "rdma-sriov/mbps"
A = Pf("a", "0000:04:00.0", "ethernet", "default", 100_000, 90_000, True, Indexes.of(range(4)), "0000:04:00.2")
B = replace(A, name="b", pci="0000:05:00.0", vf0="0000:05:00.2", offer_mbps=50_000)
ADDRESSES = ("0000:04:00.2", "0000:04:00.3")


def counted(*pfs: Pf, held: tuple[HeldVf, ...] = ()) -> tuple[int, int]:
    counts = counted_resources((VFS, MBPS), Inventory("boot", pfs), held)
    return counts[VFS], counts[MBPS]


def test_what_pods_hold_counts_once() -> None:
    """On offer, out, and on a PF that is gone: a VF of a pod counts, and no VF counts twice."""
    out = replace(A, out=(Out(Indexes.of((0, 1)), "drained"),))
    gone = (HeldVf("a", ADDRESSES[0], 5000), HeldVf("z", "0000:09:00.2", 7000))
    assert counted(A, B) == (8, 140_000)
    assert counted(A, B, held=gone[:1]) == (8, 140_000)
    assert counted(out, B) == (6, 140_000)
    assert counted(out, B, held=gone[:1]) == (7, 140_000)
    assert counted(out, B, held=gone) == (8, 147_000)
    assert counted(held=gone) == (2, 12_000)


def test_a_port_offers_its_rate_once_and_no_less_than_is_reserved() -> None:
    """PFs of one cable share it; an offer that was lowered below what pods reserve counts as that."""
    first, second = replace(A, port="p0"), replace(B, port="p0")
    assert counted(first, second) == (8, 50_000)
    held = (HeldVf("a", ADDRESSES[0], 40_000), HeldVf("b", "0000:05:00.2", 20_000))
    assert counted(first, second, held=held) == (8, 60_000)


@pytest.mark.parametrize("count", [0, 7, 8, 120, 1000, 10_000, 150_500, 400_000, 2_000_000])
def test_a_count_is_read_as_it_is_written(count: int) -> None:
    """In the form in which the API server returns it."""
    assert read_quantity(quantity(count)) == count


@pytest.mark.parametrize("text", [None, "", "k", "1.5", "-1", "100m", "x"])
def test_what_is_no_count_is_none(text: object) -> None:
    """Another writer may have put anything there."""
    assert read_quantity(text) == 0


class _Host:
    """A node with four VFs whose pod holds two of them; its API server outlives its boots."""

    def __init__(self, folder: Path, server: ApiServer) -> None:
        self.folder, self.server = folder, server

    def record_pod(self) -> None:
        settings = VfSettings(min_tx_rate=60_000)
        vfs = tuple(AssignedVf("enp4s0f0", vf, ADDRESSES[vf], "ethernet", "default", settings) for vf in (0, 1))
        record = PodRecord("default/train", Assignment("u1", "n1", vfs))
        Records(self.folder / "state", self.folder / "run").write_pod(record)

    def boot(self, *, vfs: int) -> Path:
        """Return the root of a boot's own folders: nothing in the run folder, and so many VFs of each PF."""
        fresh = self.folder / f"boot{len(list(self.folder.glob('boot*')))}"
        build(fresh / "sys", describe_host("n1", 1, vfs=vfs))
        (fresh / "run").mkdir()
        (fresh / "kubeconfig").write_text(self.server.kubeconfig_text())
        return fresh

    async def status(self, change: Mapping[str, str | None] | None = None) -> dict[str, Any]:
        """Change capacity and allocatable, if told to, and return what a kubelet's admission reads: allocatable."""
        headers = {"Content-Type": "application/merge-patch+json"}
        async with aiohttp.ClientSession(self.server.url) as session:
            if change is not None:
                body = {"status": {"capacity": change, "allocatable": change}}
                async with session.patch(f"{NODE}/status", json=body, headers=headers) as answer:
                    answer.raise_for_status()
            async with session.get(NODE) as answer:
                found: dict[str, Any] = (await answer.json()).get("status", {}).get("allocatable", {})
        return found

    async def until(self, holds: Callable[[dict[str, Any]], bool]) -> None:
        await node_when(self.server, lambda found: holds(found.get("status", {}).get("allocatable", {})))


def admitted(allocatable: Mapping[str, str], requests: Mapping[str, int]) -> bool:
    """Judge a pod alone on its node as a kubelet does when it starts.

    Admit in pkg/kubelet/lifecycle/predicate.go of Kubernetes: a request of an extended resource that the node's
    allocatable does not name is left out, one that exceeds it ends the pod (OutOf…).
    """
    return all(read_quantity(allocatable[name]) >= amount for name, amount in requests.items() if name in allocatable)


async def test_a_reboot_ends_no_pod_that_holds_vfs(tmp_path: Path) -> None:
    """Neither before VFs and extracts are there, nor when only the extracts are, though less is published then."""
    offer = tmp_path / "offer.yaml"
    offer.write_text(f"{{v: 1, pfs: [{{}}], resources: [{VFS}, {MBPS}]}}")
    flags = ("--resync", "0.2", "--offer", str(offer))
    wants = {VFS: 2, MBPS: 120_000}
    async with ApiServer(Options(port=0)) as server:
        host = _Host(tmp_path, server)
        async with aiohttp.ClientSession(server.url) as session:
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
            (await session.post("/api/v1/nodes", json=body)).raise_for_status()
        first = host.boot(vfs=4)
        make_folders(first / "run")
        async with advertising(first, *flags):
            await host.until(lambda found: found.get(VFS) == "8")
        before = await host.status()
        host.record_pod()
        second = host.boot(vfs=0)
        async with advertising(second, *flags) as advertiser:
            await advertiser.scanned()
            assert await host.status() == before
            # A kubelet without a device plugin's checkpoint sets them to 0 when it registers.
            await host.status({VFS: "0", MBPS: "0"})
            await host.until(lambda found: found == before)
            make_folders(second / "run")
            show_recorded_pods(tmp_path / "state", second / "run")
            await host.until(lambda found: found[VFS] == "2")
            assert admitted(await host.status(), wants)
            for extract in (second / "run").rglob("u1.json"):
                extract.unlink()
            await host.until(lambda found: found[VFS] == "0")
            assert not admitted(await host.status(), wants)
