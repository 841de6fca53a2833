"""`kubectl mooring drain` and `undrain` against an API server: what they write, with which rights, beside others."""

import asyncio
import json

import pytest

from cli.plugin.arguments import parse
from cli.plugin.edit_drain import edit_drain
from cli.plugin.reading import Reader
from mooring import names
from mooring.annotations.drain import DRAINED
from mooring.annotations.inventory import Out
from mooring.indexes import Indexes
from tests.cli.plugin.cluster import Json, Served, bound, node, pf, pod, waiting


async def two_nodes(served: Served) -> None:
    """Fill a cluster with two nodes and a pod that holds two VFs of the first."""
    for name in ("n1", "n2"):
        await served.add_node(node(name, (pf(0), pf(1))))
    await served.add_pod(bound("a", "n1", (pf(0), 0, 5000), (pf(1), 1, 0)))


async def annotations(served: Served, name: str = "n1") -> Json:
    found = json.loads(await served.client.request("GET", f"/api/v1/nodes/{name}"))
    return {key: text for key, text in found["metadata"]["annotations"].items() if key != names.INVENTORY}


async def test_a_drain_is_written_and_shows_who_still_holds_vfs(served: Served) -> None:
    """No pod is evicted; the second time nothing is left to do."""
    await two_nodes(served)
    status, out, err = await served.run("drain", "n1", "--pf", "pf0", "--reason", "new cable")
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == "node/n1 PF pf0 drained: new cable"
    assert out.splitlines()[2] == "these pods keep their VFs until they end: no pod is evicted"
    assert out.splitlines()[4].split() == ["default", "a", "pf0", "0", "0000:04:00.2"]
    assert await annotations(served) == {names.DRAIN: '["pf0"]', names.DRAIN_REASONS: '{"pf0":"new cable"}'}
    _, out, _ = await served.run("drain", "n1", "--pf", "pf0")
    assert out.splitlines()[0] == "node/n1 PF pf0 already drained: new cable"
    _, out, _ = await served.run("drain", "n1", "--pf", "pf1", "--vf", "2-3", "-o", "json")
    assert json.loads(out) == {
        "kind": "MooringDrain", "v": 1, "node": "n1", "dry_run": "none", "pods": [], "notes": [],
        "changes": [{"pf": "pf1", "vfs": "2-3", "state": "drained", "reason": ""}],
    }  # fmt: skip
    _, out, _ = await served.run("undrain", "n1")
    assert out == "node/n1 PF pf0 undrained\nnode/n1 PF pf1 undrained\n"
    assert await annotations(served) == {}
    _, out, _ = await served.run("undrain", "n1")
    assert out == "node/n1 has nothing drained\n"


@pytest.mark.parametrize(("way", "suffix"), [("client", "(dry run)"), ("server", "(server dry run)")])
async def test_a_dry_run_shows_the_same_and_writes_nothing(served: Served, way: str, suffix: str) -> None:
    """In kubectl's words."""
    await two_nodes(served)
    _, out, _ = await served.run("drain", "n1", f"--dry-run={way}", "--vf", "0000:05:00.3")
    assert out.splitlines()[0] == f"node/n1 PF pf1 VF 1 drained {suffix}"
    assert out.splitlines()[4].split()[:3] == ["default", "a", "pf1"]
    assert await annotations(served) == {}


async def test_a_server_dry_run_is_refused_as_the_write_would_be(guarded: Served) -> None:
    """The client's own needs the right to read only."""
    await two_nodes(guarded)
    await guarded.restrict("nodes", "pods", verbs=("get", "list"))
    status, _, err = await guarded.run("drain", "n1", "--dry-run=server")
    assert (status, "forbidden" in err) == (1, True)
    status, out, _ = await guarded.run("drain", "n1", "--dry-run=client")
    assert (status, out.splitlines()[0]) == (0, "node/n1 PF pf0 drained (dry run)")


async def test_the_rights_that_the_documentation_names_are_enough(guarded: Served) -> None:
    """Without the list of pods, who holds VFs is not known, and the note says so."""
    await two_nodes(guarded)
    await guarded.restrict("nodes", verbs=("get", "patch"))
    status, out, err = await guarded.run("drain", "n1", "--pf", "pf0")
    assert (status, out) == (0, "node/n1 PF pf0 drained\n")
    assert err == "Warning: forbidden: needs the right to list pods\n"


async def test_drains_at_the_same_time_do_not_lose_each_other(served: Served) -> None:
    """Each writes on what it has read, and begins again if another was first; a node's status is written meanwhile."""
    await two_nodes(served)
    reader = Reader(served.client)

    async def edit(line: str) -> None:
        await edit_drain(served.client, reader, parse(line.split()))

    await edit("drain n1 --pf pf1 --vf 3")
    writes = [edit(f"drain n1 --pf pf0 --vf {vf} --reason r{vf}") for vf in range(4)]
    heartbeat = served.patch("/api/v1/nodes/n1/status", {"status": {"phase": "Running"}})
    await asyncio.gather(*writes, edit("undrain n1 --pf pf1"), heartbeat)
    found = await annotations(served)
    assert json.loads(found[names.DRAIN]) == [f"pf0/{vf}" for vf in range(4)]
    assert json.loads(found[names.DRAIN_REASONS]) == {f"pf0/{vf}": f"r{vf}" for vf in range(4)}


async def test_what_cannot_be_drained_is_said_in_a_line(served: Served) -> None:
    """The status is that of a failure."""
    await two_nodes(served)
    await served.add_node(node("bare"))
    for argv, said in (
        (("drain", "n9"), 'Error from server (NotFound): nodes "n9" not found'),
        (("drain", "bare"), "error: node 'bare' publishes no inventory: its PFs are not known"),
        (("drain", "n1", "--pf", "pf9"), "error: node 'n1' offers no PF 'pf9'; its PFs are pf0, pf1"),
    ):
        status, out, err = await served.run(*argv)
        assert (status, out, err) == (1, "", f"{said}\n")
    await served.patch("/api/v1/nodes/n1", {"metadata": {"annotations": {names.DRAIN: "pf0"}}})
    status, _, err = await served.run("drain", "n1")
    assert (status, "correct or remove it" in err) == (1, True)


async def test_explain_names_drained_vfs_with_the_reason(served: Served) -> None:
    """Of a pod that waits those of all nodes, of one that runs those that it holds."""
    out = (Out(Indexes.of(range(4)), DRAINED),)
    await served.add_node(node("n1", (pf(0, out=out),)))
    texts = {names.DRAIN: '["pf0"]', names.DRAIN_REASONS: '{"pf0":"new cable"}'}
    await served.patch("/api/v1/nodes/n1", {"metadata": {"annotations": texts}})
    await served.add_pod(bound("a", "n1", (pf(0), 1, 0)))
    await served.add_pod(pod("b", "[{}]", status=waiting("Unschedulable", "0/1 nodes are available")))
    await served.lead()
    _, shown, _ = await served.run("explain", "a")
    assert shown.splitlines()[-3:-1] == ["drained VFs: the pod keeps them until it ends", "NODE   PF    VFS   REASON"]
    assert shown.splitlines()[-1].split() == ["n1", "pf0", "1", "new", "cable"]
    _, shown, _ = await served.run("explain", "b")
    assert shown.splitlines()[-3] == "drained VFs: no new pod gets them"
    assert shown.splitlines()[-1].split() == ["n1", "pf0", "0-3", "new", "cable"]
