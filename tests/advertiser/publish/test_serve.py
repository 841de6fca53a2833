"""The advertiser as a process against devcluster's API server."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cni.server.extracts import make_folders
from cni.vf.ledger import Ledger
from cri_shim.records import Records
from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer, Options
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from mooring.files import write_shared
from mooring.names import DRAIN, INVENTORY
from mooring.records import without_devices
from mooring.records.without_devices import WithoutDevices, dump_without_devices
from tests.advertiser.held_pod import VF1, bind_pod, hold
from tests.advertiser.program import Advertiser, advertising, arguments
from tests.advertiser.published import NODE, node, until
from tests.support import polling
from tests.support.polling import eventually
from tests.support.simulated_nics import EACH, MLX5, Nic

MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
def nic() -> Nic:
    """The NIC of every test here that does not name another."""
    return MLX5


@pytest.fixture
async def server(tmp_path: Path, nic: Nic) -> AsyncIterator[ApiServer]:
    """An API server with the node n1, and a host's tree beside it."""
    build(tmp_path / "sys", nic.host(vfs=4))
    make_folders(tmp_path / "run")
    async with ApiServer(Options(port=0)) as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig_text())
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": {"theirs": "kept"}}}
        async with aiohttp.ClientSession(server.url) as session, session.post("/api/v1/nodes", json=node) as answer:
            assert answer.status == 201
        yield server


@pytest.fixture
async def advertiser(server: ApiServer, tmp_path: Path) -> AsyncIterator[Advertiser]:
    """The program itself, serving, with a resync short enough for a test."""
    async with advertising(tmp_path, "--resync", "0.2") as found:
        yield found


@pytest.mark.parametrize("nic", EACH)
async def test_the_inventory_is_published_at_start(server: ApiServer, advertiser: Advertiser, tmp_path: Path) -> None:
    """Our key is written and theirs is kept; the program's version is among the programs."""
    found = await until(server, lambda annotations: INVENTORY in annotations)
    inventory = json.loads(found["metadata"]["annotations"][INVENTORY])
    assert found["metadata"]["annotations"]["theirs"] == "kept"
    assert [pf["vfs"] for pf in inventory["pfs"]] == ["0-3", "0-3"]
    assert "mooring-advertiser" in inventory["programs"]


async def test_nothing_is_written_at_rest(server: ApiServer, advertiser: Advertiser) -> None:
    """Over resyncs without a change the node's version stays as it is."""
    first = await until(server, lambda annotations: INVENTORY in annotations)
    for _ in range(3):
        await advertiser.scanned()
    assert (await node(server))["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@pytest.mark.parametrize("nic", EACH)
async def test_a_change_on_the_host_is_published(
    server: ApiServer, advertiser: Advertiser, tmp_path: Path, nic: Nic
) -> None:
    """A PF that loses its carrier is published with up:false; on InfiniBand the port of its RDMA device decides."""
    await until(server, lambda annotations: INVENTORY in annotations)
    pf = tmp_path / "sys/bus/pci/devices/0000:04:00.0"
    if nic.link == "infiniband":
        (pf / "infiniband/mlx5_0/ports/1/state").write_text("1: DOWN\n")
    (pf / "net/enp4s0f0/carrier").unlink()
    (pf / "net/enp4s0f0/operstate").write_text("down\n")
    await until(server, lambda annotations: '"up":false' in annotations.get(INVENTORY, ""))


@pytest.mark.parametrize("value", ["forged", None])
async def test_an_edited_or_removed_annotation_is_put_back(
    server: ApiServer, advertiser: Advertiser, value: str | None
) -> None:
    """A change by another writer of our key is overwritten."""
    first = await until(server, lambda annotations: INVENTORY in annotations)
    await annotate(server, {INVENTORY: value})
    wanted = first["metadata"]["annotations"][INVENTORY]
    await until(server, lambda annotations: annotations.get(INVENTORY) == wanted)


async def test_outages_are_outlasted(server: ApiServer, tmp_path: Path) -> None:
    """Throttled, failed and cut requests are repeated until one passes."""
    for status in (429, 500, 503):
        server.faults.plan(Fault("PATCH", r"/nodes/", "answer", code=status))
    server.faults.plan(Fault("PATCH", r"/nodes/", "drop_before"))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments("once", tmp_path))
    assert await asyncio.wait_for(process.wait(), polling.LIMIT_S) == 0
    assert INVENTORY in (await node(server))["metadata"]["annotations"]


async def test_a_missing_node_is_an_error_of_once(server: ApiServer, tmp_path: Path) -> None:
    """The status is 1, and nothing is created for a node that does not exist."""
    wrong = [*arguments("once", tmp_path), "--node-name", "n9"]
    process = await asyncio.create_subprocess_exec(sys.executable, *wrong)
    assert await asyncio.wait_for(process.wait(), polling.LIMIT_S) == 1


async def test_once_is_not_stopped_by_a_drain_annotation_that_cannot_be_read(server: ApiServer, tmp_path: Path) -> None:
    """It changes nothing, as it does while the program serves."""
    await annotate(server, {DRAIN: "enp4s0f0"})
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments("once", tmp_path))
    assert await asyncio.wait_for(process.wait(), polling.LIMIT_S) == 0
    assert "out" not in inventory_of(await node(server))


async def test_show_needs_no_cluster(tmp_path: Path) -> None:
    """`show` prints the same inventory as JSON, from a tree alone."""
    build(tmp_path / "sys", describe_host("n1", 1, vfs=2))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments("show", tmp_path), "--output", "json", stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    assert [pf["name"] for pf in json.loads(printed)["inventory"]["pfs"]] == ["enp4s0f0", "enp4s0f1"]


def rate_of(nic: Nic) -> dict[str, int]:
    """Return what a VF that is out still reserves."""
    low = nic.held.min_tx_rate
    return {"min_tx_rate": low} if low else {}


@pytest.mark.parametrize("nic", EACH)
async def test_a_vf_held_by_a_pod_that_is_gone_is_out_until_it_is_released(
    server: ApiServer, advertiser: Advertiser, tmp_path: Path, nic: Nic
) -> None:
    """While the pod is to run its VF is on offer.

    When its sandbox is being stopped it is held, with its rate; without the entry it is on offer again.
    """
    await until(server, lambda annotations: INVENTORY in annotations)
    uid = await bind_pod(server, tmp_path, nic)
    hold(tmp_path, uid, nic)
    await until(server, lambda annotations: '"out"' not in annotations[INVENTORY])
    await advertiser.scanned()
    assert "out" not in inventory_of(await node(server))
    # As the shim does when the kubelet stops the sandbox: a container that cannot be killed keeps it for minutes.
    Records(tmp_path / "state", tmp_path / "run").hide_pod(uid)
    found = await until(server, lambda annotations: '"out"' in annotations[INVENTORY])
    assert inventory_of(found)["out"] == [{"vfs": "1", "why": f"held by pod {uid}", **rate_of(nic)}]
    # Given back: the netdev first, the entry last.
    (tmp_path / "sys/bus/pci/devices" / VF1 / "net/enp4s0f0v1").mkdir()
    Ledger(tmp_path / "state", tmp_path / "run").remove(VF1)
    await until(server, lambda annotations: '"out"' not in annotations[INVENTORY])


@pytest.mark.parametrize("nic", EACH)
async def test_a_pf_renamed_under_a_live_pod_keeps_the_pods_vf_out(
    server: ApiServer, advertiser: Advertiser, tmp_path: Path, nic: Nic
) -> None:
    """The assignment has the old name, so only the node counts it against the new one."""
    await until(server, lambda annotations: INVENTORY in annotations)
    uid = await bind_pod(server, tmp_path, nic)
    hold(tmp_path, uid, nic)
    net = tmp_path / "sys/bus/pci/devices/0000:04:00.0/net"
    (net / "enp4s0f0").rename(net / "renamed")
    found = await until(
        server, lambda annotations: '"renamed"' in annotations[INVENTORY] and '"out"' in annotations[INVENTORY]
    )
    assert inventory_of(found)["out"] == [{"vfs": "1", "why": f"held by pod {uid}", **rate_of(nic)}]


@pytest.mark.parametrize("nic", EACH)
async def test_a_held_vf_found_in_the_host_is_lost_and_its_pod_is_told_once(
    server: ApiServer, tmp_path: Path, nic: Nic
) -> None:
    """It is out; one Event on the pod, however often it is scanned and by a restarted advertiser too."""
    async with advertising(tmp_path, "--resync", "0.2") as first:
        await until(server, lambda annotations: INVENTORY in annotations)
        uid = await bind_pod(server, tmp_path, nic)
        hold(tmp_path, uid, nic)
        await first.scanned()
        await until(server, lambda annotations: '"out"' not in annotations[INVENTORY])
        (tmp_path / "sys/bus/pci/devices" / VF1 / "net/eth0").mkdir()
        found = await until(server, lambda annotations: '"out"' in annotations[INVENTORY])
        assert inventory_of(found)["out"] == [{"vfs": "1", "why": f"lost: on the host although pod {uid} holds it"}]
        (event,) = await events(server)
        await first.scanned()
    assert (event["reason"], event["type"], event["involvedObject"]["uid"]) == ("VfLost", "Warning", uid)
    assert event["message"].startswith(f"VF 1 of enp4s0f0 ({VF1}) is back in the host's network namespace")
    # Nothing is delayed: the counter shows whether the request came.
    told_again = Fault("POST", r"/events", "delay")
    server.faults.plan(told_again)
    async with advertising(tmp_path, "--resync", "0.2") as again:
        await polling.until(lambda: not told_again.times)
        await again.scanned()
        assert "out" in inventory_of(await node(server))
    assert len(await events(server)) == 1


async def test_a_container_without_devices_is_told_on_its_pod_once(server: ApiServer, tmp_path: Path) -> None:
    """As the CRI shim reports it while the advertiser runs, however often it is scanned."""
    async with advertising(tmp_path, "--resync", "0.2") as advertiser:
        await until(server, lambda annotations: INVENTORY in annotations)
        uid = await bind_pod(server, tmp_path)
        found = WithoutDevices("default/train", uid, "main", "5f0e", (VF1,))
        write_shared(tmp_path / "run" / without_devices.NAME, dump_without_devices([found]))
        (event,) = await events(server)
        await advertiser.scanned()
    assert (event["reason"], event["involvedObject"]["uid"]) == ("VfDevicesMissing", uid)
    assert event["message"].startswith(f"container main runs without the devices of VF {VF1}: ")
    assert len(await events(server)) == 1


async def events(server: ApiServer) -> list[dict[str, Any]]:
    """Return the events there are, once there is one."""

    async def listed() -> list[dict[str, Any]]:
        async with session.get("/api/v1/namespaces/default/events") as answer:
            found: list[dict[str, Any]] = (await answer.json())["items"]
        return found

    async with aiohttp.ClientSession(server.url) as session:
        return await eventually(listed)


async def test_rit_k8s_rdmas_resources_are_in_node_status_and_put_back(server: ApiServer, tmp_path: Path) -> None:
    """Both fields have the number of VFs less those that are out; a kubelet that sets them to 0 is corrected."""
    (tmp_path / "offer.yaml").write_text(
        "{v: 1, pfs: [{}], resources: [rdma-sriov/vf, tencent.com/rdma, rdma-sriov/dev-infiniband-mount]}"
    )
    await set_status(server, {"cpu": "4"})
    counts = {"rdma-sriov/vf": "8", "tencent.com/rdma": "8", "rdma-sriov/dev-infiniband-mount": "10k", "cpu": "4"}
    async with advertising(tmp_path, "--resync", "0.2", "--offer", str(tmp_path / "offer.yaml")) as advertiser:
        await status_becomes(server, {"capacity": counts, "allocatable": counts})
        # The inventory is written beside it.
        await advertiser.scanned()
        version = (await node(server))["metadata"]["resourceVersion"]
        await advertiser.scanned()
        assert (await node(server))["metadata"]["resourceVersion"] == version
        await set_status(server, {"rdma-sriov/vf": "0", "tencent.com/rdma": None})
        await status_becomes(server, {"capacity": counts, "allocatable": counts})
        await annotate(server, {DRAIN: '["enp4s0f0/2"]'})
        less = counts | {"rdma-sriov/vf": "7", "tencent.com/rdma": "7"}
        await status_becomes(server, {"capacity": less, "allocatable": less})
        await advertiser.scanned()
        await sync_as_a_kubelet(server)
        version = (await node(server))["metadata"]["resourceVersion"]
        await advertiser.scanned()
        assert (await node(server))["metadata"]["resourceVersion"] == version


async def set_status(server: ApiServer, amounts: dict[str, str | None]) -> None:
    patch = {"status": {"capacity": amounts, "allocatable": amounts}}
    async with (
        aiohttp.ClientSession(server.url) as session,
        session.patch(f"{NODE}/status", json=patch, headers=MERGE) as answer,
    ):
        answer.raise_for_status()


async def sync_as_a_kubelet(server: ApiServer) -> None:
    """Set allocatable to capacity, as a kubelet does every ten seconds of resources that it does not know.

    Source: MachineInfo in pkg/kubelet/nodestatus/setters.go of Kubernetes.
    """
    await set_status(server, (await node(server))["status"]["capacity"])


async def status_becomes(server: ApiServer, wanted: dict[str, dict[str, str]]) -> None:

    async def reached() -> bool:
        status = (await node(server)).get("status", {})
        return {key: status.get(key) for key in wanted} == wanted

    await eventually(reached)


@pytest.mark.parametrize("nic", EACH)
async def test_a_drained_vf_is_out_by_its_annotations_event(server: ApiServer, tmp_path: Path) -> None:
    """The operator's annotation on the node, and back: both take effect before the resync, which is an hour away."""
    async with advertising(tmp_path, "--resync", "3600"):
        found = await until(server, lambda annotations: INVENTORY in annotations)
        assert "out" not in inventory_of(found)
        await annotate(server, {DRAIN: '["enp4s0f0/2"]'})
        found = await until(server, lambda annotations: '"out"' in annotations[INVENTORY])
        assert inventory_of(found)["out"] == [{"vfs": "2", "why": "drained"}]
        await annotate(server, {DRAIN: None})
        await until(server, lambda annotations: '"out"' not in annotations[INVENTORY])


async def test_getpfs_and_readiness_are_served(server: ApiServer, tmp_path: Path) -> None:
    """Ready when published; /getpfs answers from live state; an unreadable host is a 500."""
    async with advertising(tmp_path) as advertiser:
        await until(server, lambda annotations: INVENTORY in annotations)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{advertiser.port}") as session:

            async def ready() -> bool:
                return (await session.get("/readyz")).status == 200

            await eventually(ready)
            assert [pf["capacity_vfs"] for pf in await (await session.get("/getpfs")).json()] == [4, 4]
            assert "mooring_inventory_patches_total 1.0" in await (await session.get("/metrics")).text()
            assert (await session.get("/healthz")).status == 200
            (tmp_path / "sys/bus/pci/devices").rename(tmp_path / "elsewhere")

            async def failed() -> str | None:
                # Answers are shared for a second.
                answer = await session.get("/getpfs")
                return await answer.text() if answer.status == 500 else None

            assert (await eventually(failed)).startswith("ERROR: ")


async def test_a_host_that_cannot_be_read_takes_nothing_back(
    server: ApiServer, advertiser: Advertiser, tmp_path: Path
) -> None:
    """Without a PCI bus the last inventory stays, and the program continues."""
    first = await until(server, lambda annotations: INVENTORY in annotations)
    devices = tmp_path / "sys/bus/pci/devices"
    devices.rename(tmp_path / "elsewhere")

    async def failed_twice() -> bool:
        return await advertiser.metric("mooring_inventory_scan_failures_total") >= 2

    await eventually(failed_twice)
    assert inventory_of(await node(server)) == inventory_of(first)
    (tmp_path / "elsewhere").rename(devices)
    netdev = devices / "0000:04:00.0/net/enp4s0f0"
    (netdev / "operstate").write_text("down\n")
    await until(server, lambda annotations: '"up":false' in annotations[INVENTORY])


def inventory_of(found: dict[str, Any]) -> dict[str, Any]:
    """Return the first PF that a node's annotation names."""
    pf: dict[str, Any] = json.loads(found["metadata"]["annotations"][INVENTORY])["pfs"][0]
    return pf


async def annotate(server: ApiServer, annotations: dict[str, str | None]) -> None:
    patch = {"metadata": {"annotations": annotations}}
    async with aiohttp.ClientSession(server.url) as session, session.patch(NODE, json=patch, headers=MERGE) as answer:
        assert answer.status == 200
        found = (await answer.json())["metadata"]["annotations"]
    assert all(found.get(key) == value for key, value in annotations.items())


async def test_nothing_is_published_before_the_node_is_known(server: ApiServer, tmp_path: Path) -> None:
    """Without its annotations a VF that is drained would be offered for a moment."""
    unlisted = Fault("GET", r"/api/v1/nodes(\?|$)", "answer", times=1000, code=503)
    server.faults.plan(unlisted)
    async with advertising(tmp_path, "--resync", "0.2"):
        await polling.until(lambda: unlisted.times <= 997)
        assert INVENTORY not in (await node(server))["metadata"]["annotations"]
        server.faults.planned.clear()
        await until(server, lambda annotations: INVENTORY in annotations)
