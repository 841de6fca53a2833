"""The program itself: GPUs are shown and published where it is told to, and left alone where it is not."""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from advertiser.__main__ import main
from cni.server.extracts import make_folders
from devcluster.apiserver.serve import ApiServer, Options
from mooring.annotations.assignment import read_assignment
from mooring.gpu.inventory import KEY, read_gpu_inventory
from mooring.gpu.request import RESOURCE
from mooring.records.extract import PODS, pod_extract
from mooring.records.pod_record import PodRecord
from tests.advertiser.gpu.trees import Host
from tests.advertiser.program import advertising, arguments
from tests.advertiser.published import node, node_when, until
from tests.support import polling

THEIRS = '{"v":1,"gpus":[],"by":"another program"}'


@pytest.fixture
def host(make_host: Callable[[str], Host]) -> Host:
    return make_host("mi300x")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    """An API server with the node n1, whose GPUs another program has described."""
    make_folders(tmp_path / "run")
    async with ApiServer(Options(port=0)) as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig_text())
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": {KEY: THEIRS}}}
        async with aiohttp.ClientSession(server.url) as session, session.post("/api/v1/nodes", json=node) as answer:
            assert answer.status == 201
        yield server


def _flags(host: Host) -> list[str]:
    cdi = f"{host.root}/etc/cdi:{host.root}/var/run/cdi"
    return ["--gpus", "--proc", str(host.root / "proc"), "--cdi", cdi]


async def _annotation(server: ApiServer) -> str:
    return str((await node(server))["metadata"]["annotations"][KEY])


async def _until(server: ApiServer, holds: Callable[[str], bool]) -> str:
    found = await until(server, lambda annotations: holds(annotations[KEY]))
    return str(found["metadata"]["annotations"][KEY])


async def test_the_gpus_are_published_kept_and_changed(server: ApiServer, host: Host) -> None:
    """What another writer makes of the annotation is put right, and a new CDI specification counts at once."""
    async with advertising(host.root, *_flags(host), "--resync", "0.2"):
        found = read_gpu_inventory(await _until(server, lambda text: text != THEIRS))
        assert [gpu.pci for gpu in found.gpus] == host.gpus
        await _write(server, "forged")
        await _until(server, lambda text: text != "forged")
        (host.root / "etc/cdi/amd.com-gpu.json").unlink()
        await _until(server, lambda text: text.count("no CDI specification describes it") == len(host.gpus))


async def _until_counted(server: ApiServer, expected: str) -> None:
    """Wait until capacity and allocatable are so many."""

    def counted(found: dict[str, Any]) -> bool:
        status = found.get("status", {})
        return [status.get(part, {}).get(RESOURCE) for part in ("capacity", "allocatable")] == [expected] * 2

    await node_when(server, counted)


def _record(host: Host, index: int) -> Path:
    """Show that a pod has a GPU."""
    gpus = {"units": [host.gpus[index]], "uuids": ["GPU-1"], "containers": {}}
    record = read_assignment(json.dumps({"v": 1, "uid": "u1", "node": "n1", "vfs": [], "ext": {"gpu": gpus}}))
    extract = host.root / "run" / PODS / "u1.json"
    extract.write_text(pod_extract(PodRecord("ml/web", record)))
    return extract


@pytest.mark.parametrize("lost", ["out", "gone"])
async def test_the_resource_counts_gpus_on_offer_and_those_that_a_pod_has(
    server: ApiServer, host: Host, lost: str
) -> None:
    """A GPU that is out or gone while its pod runs counts until that pod is gone: its kubelet may admit it again."""
    async with advertising(host.root, *_flags(host), "--resync", "0.2"):
        await _until_counted(server, "8")
        (host.folder(0) / "driver" if lost == "out" else host.sysfs / "bus/pci/devices" / host.gpus[0]).unlink()
        await _until_counted(server, "7")
        extract = _record(host, 0)
        await _until_counted(server, "8")
        extract.unlink()
        await _until_counted(server, "7")


async def test_after_a_boot_the_resource_does_not_fall_before_pods_are_known(server: ApiServer, host: Host) -> None:
    """CDI specifications and drivers may come later than the kubelet, which admits the node's pods again then."""
    async with advertising(host.root, *_flags(host), "--resync", "0.2"):
        await _until_counted(server, "8")
    shutil.rmtree(host.root / "run")
    (host.root / "run").mkdir()
    specification = next((host.root / "etc/cdi").iterdir())
    text = specification.read_text()
    specification.unlink()
    async with advertising(host.root, *_flags(host), "--resync", "0.2"):
        await _until(server, lambda found: found.count("no CDI specification describes it") == len(host.gpus))
        # A kubelet without a device plugin's checkpoint sets it to 0 when it registers.
        await _write_status(server, "0")
        await _until_counted(server, "8")
        make_folders(host.root / "run")
        extract = _record(host, 0)
        await _until_counted(server, "1")
        extract.unlink()
        await _until_counted(server, "0")
        specification.write_text(text)
        await _until_counted(server, "8")


async def _write_status(server: ApiServer, count: str) -> None:
    patch = json.dumps({"status": {part: {RESOURCE: count} for part in ("capacity", "allocatable")}})
    headers = {"Content-Type": "application/merge-patch+json"}
    async with (
        aiohttp.ClientSession(server.url) as session,
        session.patch("/api/v1/nodes/n1/status", data=patch, headers=headers) as answer,
    ):
        assert answer.status == 200


async def _write(server: ApiServer, text: str) -> None:
    patch = json.dumps({"metadata": {"annotations": {KEY: text}}})
    headers = {"Content-Type": "application/merge-patch+json"}
    async with (
        aiohttp.ClientSession(server.url) as session,
        session.patch("/api/v1/nodes/n1", data=patch, headers=headers) as answer,
    ):
        assert answer.status == 200


async def test_once_publishes_them_too_and_only_if_told(server: ApiServer, host: Host) -> None:
    """Without the flag another program's annotation stays."""
    for more, theirs in (([], True), (_flags(host), False)):
        command = (sys.executable, *arguments("once", host.root), *more)
        process = await asyncio.create_subprocess_exec(*command)
        assert await asyncio.wait_for(process.wait(), polling.LIMIT_S) == 0
        assert (await _annotation(server) == THEIRS) == theirs


def _show(capsys: pytest.CaptureFixture[str], host: Host, *more: str) -> tuple[int, str]:
    roots = [
        "--sysfs",
        str(host.sysfs),
        "--state",
        str(host.root),
        "--run",
        str(host.root / "run"),
        "--node-name",
        "n1",
    ]
    status = main(["show", *roots, *more])
    return status, capsys.readouterr().out


def test_show_has_them_as_json_and_as_a_table(capsys: pytest.CaptureFixture[str], host: Host) -> None:
    """Only with the flag; the ones that are out stand below the table with their reasons."""
    (host.folder(0) / "driver").unlink()
    document: dict[str, Any] = json.loads(_show(capsys, host, *_flags(host), "-o", "json")[1])
    found = read_gpu_inventory(json.dumps(document["gpu_inventory"]))
    assert ([gpu.pci for gpu in found.gpus], len(found.out)) == (host.gpus[1:], 1)
    _, table = _show(capsys, host, *_flags(host))
    assert "n1: 7 GPUs on offer" in table
    assert "GPU 0000:0c:00.0 is out: no driver" in table
    assert "gpu_inventory" not in json.loads(_show(capsys, host, "-o", "json")[1])


def test_an_address_is_shown_as_it_is(capsys: pytest.CaptureFixture[str], make_host: Callable[[str], Host]) -> None:
    """Of a bus ab or cd too, whose names between colons are those of pictures: of GPUs, bridges and NICs."""
    host = make_host("hgx-h100")
    _, table = _show(capsys, host, *_flags(host))
    assert "0000:cb:01.0 0000:cc:00.0 0000:cd:04.0" in table
    nic = host.sysfs / "bus/pci/devices/0000:ab:00.0"
    nic.mkdir()
    (nic / "class").write_text("0x020000")
    assert "0000:ab:00.0" in _show(capsys, host)[1]


def test_a_file_that_was_named_and_is_not_there_ends_the_program(
    capsys: pytest.CaptureFixture[str], host: Host
) -> None:
    """As with the offer; the default file may be absent."""
    status, _ = _show(capsys, host, *_flags(host), "--gpus-file", str(host.root / "absent.yaml"))
    assert status == 1
