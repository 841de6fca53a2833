"""`kubectl mooring report`: one document of what the other commands show."""

import json
from pathlib import Path

import pytest

from tests.cli.plugin.cluster import Json, Served, bound, node, pf, pod, waiting

RACK = "topology.kubernetes.io/rack"


async def _document(served: Served, *command: str) -> Json:
    _, out, err = await served.run(*command, "-o", "json")
    assert out, err
    return dict(json.loads(out))


async def test_its_parts_are_what_the_commands_show(served: Served) -> None:
    """With the labels of each node, and of each pod its age and its last decision."""
    labelled = node("n1", (pf(0, pcie=("0000:00:01.0",)), pf(1)))
    labelled["metadata"]["labels"][RACK] = "r1"
    await served.add_node(labelled)
    await served.add_node(node("n2"))
    await served.add_pod(bound("a", "n1", (pf(0), 1, 5000)))
    group = {"mooring.dev/group": '{"name":"train","min":2,"within":"topology.kubernetes.io/rack"}'}
    await served.add_pod(pod("b", "[{}]", annotations=group, status=waiting("Unschedulable", "0/2 nodes fit")))
    report = await _document(served, "report")
    assert (report["kind"], report["v"], report["levels"]) == ("MooringReport", 1, [RACK])
    nodes = (await _document(served, "nodes"))["items"]
    labels: list[dict[str, str]] = [{RACK: "r1"}, {}]
    assert report["nodes"] == [one | {"labels": own} for one, own in zip(nodes, labels, strict=True)]
    pods = (await _document(served, "pods", "-A"))["items"]
    assert [{k: v for k, v in one.items() if k not in ("created", "decision")} for one in report["pods"]] == pods
    assert all(one["created"] for one in report["pods"])
    assert report["groups"] == (await _document(served, "groups", "-A"))["items"]
    doctor = await _document(served, "doctor")
    assert (report["checks"], report["findings"]) == (doctor["checks"], doctor["findings"])
    assert nodes[0]["pfs"][0]["pcie"] == ["0000:00:01.0"]


async def test_what_may_not_be_listed_is_noted(guarded: Served) -> None:
    """Nodes alone: the page says what it lacks, and pods are unknown, not absent."""
    await guarded.add_node(node("n1", (pf(0),)))
    await guarded.restrict("nodes")
    report = await _document(guarded, "report")
    assert report["pods"] is None
    assert report["nodes"][0]["pfs"][0]["vfs"]["free"] is None
    assert any("list pods" in note for note in report["notes"])


async def test_other_formats_are_refused(served: Served) -> None:
    """A page has no columns; other commands have no page."""
    for argv, error in (
        (("report", "-o", "wide"), "allowed formats are: html,json,yaml,jsonpath=TEMPLATE"),
        (("-o", "wide", "report"), "output format 'wide': report has html, json, yaml, jsonpath"),
        (("nodes", "-o", "html"), "output format 'html'"),
    ):
        with pytest.raises(SystemExit, match="1"):
            await served.run(*argv)
        assert error in served.said()[1]


async def test_a_bundle_gives_the_same_report(served: Served, tmp_path: Path) -> None:
    """As the cluster was when the bundle was taken, decisions included."""
    await served.add_node(node("n1", (pf(0),)))
    await served.add_pod(bound("a", "n1", (pf(0), 1, 5000)))
    live = await _document(served, "report")
    bundle = str(tmp_path / "bundle.tar.gz")
    status, _, err = await served.run("support-bundle", "-o", bundle)
    assert status == 0, err
    _, out, _ = await served.run_alone("report", "--from", bundle, "-o", "json")
    kept = json.loads(out)
    assert {part: kept[part] for part in ("nodes", "pods", "groups")} == {
        part: live[part] for part in ("nodes", "pods", "groups")
    }
