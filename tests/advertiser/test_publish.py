"""The advertiser as a process against devcluster's API server."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devcluster.apiserver.faults import Fault
from devcluster.apiserver.serve import ApiServer, Options
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from mooring.names import INVENTORY

NODE = "/api/v1/nodes/n1"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    """An API server with the node n1, and a host's tree beside it."""
    build(tmp_path / "sys", describe_host("n1", 1, vfs=4))
    async with ApiServer(Options(port=0)) as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig_text())
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": {"theirs": "kept"}}}
        async with aiohttp.ClientSession(server.url) as session, session.post("/api/v1/nodes", json=node) as answer:
            assert answer.status == 201
        yield server


async def node(server: ApiServer) -> dict[str, Any]:
    async with aiohttp.ClientSession(server.url) as session, session.get(NODE) as answer:
        found: dict[str, Any] = await answer.json()
        return found


async def until(server: ApiServer, holds: Callable[[dict[str, str]], bool]) -> dict[str, Any]:
    """Return the node as soon as its annotations are as wished."""
    async with asyncio.timeout(20):
        while not holds((found := await node(server))["metadata"].get("annotations", {})):
            await asyncio.sleep(0.02)
    return found


def arguments(command: str, folder: Path) -> list[str]:
    flags = ["--kubeconfig", str(folder / "kubeconfig"), "--node-name", "n1", "--sysfs", str(folder / "sys")]
    return [
        "-m",
        "advertiser",
        command,
        *flags,
        "--state",
        str(folder / "state"),
        "--run",
        str(folder / "run"),
        "--getpfs-addr",
        "",
    ]


@pytest.fixture
async def advertiser(server: ApiServer, tmp_path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The program itself, serving, with a resync short enough for a test."""
    more = ("--resync", "0.2")
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments("serve", tmp_path), *more)
    yield process
    if process.returncode is None:
        process.terminate()
    assert await process.wait() == 0


async def test_the_inventory_is_published_at_start(
    server: ApiServer, advertiser: asyncio.subprocess.Process, tmp_path: Path
) -> None:
    """Our key is written and theirs is kept; the program's version is among the programs."""
    found = await until(server, lambda annotations: INVENTORY in annotations)
    inventory = json.loads(found["metadata"]["annotations"][INVENTORY])
    assert found["metadata"]["annotations"]["theirs"] == "kept"
    assert [pf["vfs"] for pf in inventory["pfs"]] == ["0-3", "0-3"]
    assert "mooring-advertiser" in inventory["programs"]


async def test_nothing_is_written_at_rest(server: ApiServer, advertiser: asyncio.subprocess.Process) -> None:
    """Over many resyncs without a change the node's version stays as it is."""
    first = await until(server, lambda annotations: INVENTORY in annotations)
    await asyncio.sleep(2)
    assert (await node(server))["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_change_on_the_host_is_published(
    server: ApiServer, advertiser: asyncio.subprocess.Process, tmp_path: Path
) -> None:
    """A carrier lost shows as up:false."""
    await until(server, lambda annotations: INVENTORY in annotations)
    netdev = tmp_path / "sys/bus/pci/devices/0000:04:00.0/net/enp4s0f0"
    (netdev / "carrier").unlink()
    (netdev / "operstate").write_text("down\n")
    await until(server, lambda annotations: '"up":false' in annotations.get(INVENTORY, ""))


@pytest.mark.parametrize("value", ["forged", None])
async def test_an_edited_or_removed_annotation_is_put_back(
    server: ApiServer, advertiser: asyncio.subprocess.Process, value: str | None
) -> None:
    """Whoever writes our key is overruled."""
    first = await until(server, lambda annotations: INVENTORY in annotations)
    patch = {"metadata": {"annotations": {INVENTORY: value}}}
    async with aiohttp.ClientSession(server.url) as session, session.patch(NODE, json=patch, headers=MERGE) as answer:
        assert answer.status == 200
    wanted = first["metadata"]["annotations"][INVENTORY]
    await until(server, lambda annotations: annotations.get(INVENTORY) == wanted)


async def test_outages_are_outlasted(server: ApiServer, tmp_path: Path) -> None:
    """Throttled, failed and cut requests are repeated until one passes."""
    for status in (429, 500, 503):
        server.faults.plan(Fault("PATCH", r"/nodes/", "answer", code=status))
    server.faults.plan(Fault("PATCH", r"/nodes/", "drop_before"))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments("once", tmp_path))
    assert await asyncio.wait_for(process.wait(), 20) == 0
    assert INVENTORY in (await node(server))["metadata"]["annotations"]


async def test_a_missing_node_is_an_error_of_once(server: ApiServer, tmp_path: Path) -> None:
    """Nothing is created for a node that does not exist: status 1."""
    wrong = [*arguments("once", tmp_path), "--node-name", "n9"]
    process = await asyncio.create_subprocess_exec(sys.executable, *wrong)
    assert await asyncio.wait_for(process.wait(), 20) == 1


async def test_show_needs_no_cluster(tmp_path: Path) -> None:
    """The same inventory as JSON, from a tree alone."""
    build(tmp_path / "sys", describe_host("n1", 1, vfs=2))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments("show", tmp_path), "--output", "json", stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    assert [pf["name"] for pf in json.loads(printed)["inventory"]["pfs"]] == ["enp4s0f0", "enp4s0f1"]
