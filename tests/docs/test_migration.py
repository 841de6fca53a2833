"""The way back of `docs/migration.md`, a rack at a time, beside a scheduler and with the page's commands."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from docs.hooks import texts
from mooring import names
from mooring.annotations.drain import DRAINED
from mooring.annotations.inventory import Inventory, Out, dump_inventory
from mooring.indexes import Indexes
from tests.cli.plugin.cluster import BOOT, PROGRAMS, Served, node, pf, pod, serving
from tests.scheduler.server.stage import Stage
from tests.support.polling import eventually

PODS = "/api/v1/namespaces/default/pods"
RACK, OTHER = ("a1", "a2"), "b1"
OUT = (Out(Indexes.of(range(4)), DRAINED),)


@pytest.fixture
async def served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Served]:
    async with serving(tmp_path, capsys.readouterr) as cluster:
        yield cluster


def _commands() -> list[str]:
    """Return the commands of `kubectl mooring` in the page's section, each with its arguments."""
    page = texts.ROOT.joinpath("docs/migration.md").read_text()
    section = page.partition("## Back to a device plugin")[2].partition("\n## ")[0]
    return re.findall(r"`kubectl mooring ([^`]+)`", section)


async def _annotation(served: Served, name: str, key: str) -> str:
    found = json.loads(await served.client.request("GET", f"/api/v1/nodes/{name}"))
    return str(found["metadata"]["annotations"][key])


async def _node_of(served: Served, name: str) -> str | None:
    found = json.loads(await served.client.request("GET", f"{PODS}/{name}"))
    return str(found["spec"].get("nodeName", "")) or None


async def _waits_because(served: Served, name: str) -> str | None:
    found = json.loads(await served.client.request("GET", f"{PODS}/{name}"))
    conditions = found.get("status", {}).get("conditions", ())
    return next((each["message"] for each in conditions if each["type"] == "PodScheduled"), None)


async def test_a_rack_leaves_while_the_others_stay(served: Served) -> None:
    """Drained nodes get no pod of Mooring's any more, cordoned or not; their old pods are listed; others go on."""
    for name in (*RACK, OTHER):
        await served.add_node(node(name, (pf(0), pf(1))))
    on = {name: {"nodeSelector": {"kubernetes.io/hostname": name}} for name in (*RACK, OTHER)}
    stage = Stage(served.server, served.client)
    async with stage.run():
        stage.loop.lead()
        for name, where in (("old", "a1"), ("stays", OTHER)):
            await served.post(PODS, pod(name, "[{}]", spec=on[where]))
            await eventually(lambda name=name: _node_of(served, name))  # type: ignore[misc]
        drain, nodes, listing = _commands()
        for name in RACK:
            status, _, err = await served.run(*drain.replace("NODE", name).split())
            assert (status, err) == (0, "")
            # As the node's advertiser answers: `cluster_view` reads the annotation, `vf_state` takes the VFs out.
            assert sorted(json.loads(await _annotation(served, name, names.DRAIN))) == ["pf0", "pf1"]
            text = dump_inventory(Inventory(BOOT, tuple(pf(index, out=OUT) for index in (0, 1)), PROGRAMS))
            await served.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": {names.INVENTORY: text}}})
        _, listed, _ = await served.run(*nodes.split())
        states = {tuple(line.split()[:2]) for line in listed.splitlines() if line.startswith((*RACK, OTHER))}
        assert states == {("a1", "ready,drained"), ("a2", "ready,drained"), (OTHER, "ready")}
        _, listed, _ = await served.run(*listing.split())
        rows = [line.split() for line in listed.splitlines() if line.startswith("default ")]
        assert {row[1] for row in rows if {*row} & {*RACK}} == {"old"}
        await served.client.request("DELETE", f"{PODS}/old", params={"gracePeriodSeconds": "0"})
        # The nodes are uncordoned for the device plugin: two of three have all their VFs free.
        await served.post(PODS, pod("new", "[{}, {}]"))
        await served.post(PODS, pod("asks", "[{}]", spec=on["a2"]))
        assert await eventually(lambda: _node_of(served, "new")) == OTHER
        assert "1 not enough free RDMA VFs" in str(await eventually(lambda: _waits_because(served, "asks")))
        # A pod of the old kind is nobody's business here: its limits are the device plugin's.
        limits = {"limits": {"nvidia.com/rail0": "1"}}
        before = pod("train", spec={"schedulerName": "default-scheduler"})
        before["spec"]["containers"][0]["resources"] = limits
        await served.post(PODS, before)
        assert await _node_of(served, "train") is None
