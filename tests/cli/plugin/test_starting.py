"""`kubectl mooring when` and `kubectl mooring fits` against an API server."""

import json
from pathlib import Path

import pytest

from mooring import names
from tests.cli.plugin.cluster import Json, Served, bound, node, pf, pod

_GROUP = '{"name":"train","min":2,"runs":"1h"}'
_PROMISE = "It starts by 2026-01-01T02:00:30Z on nodes n1, n2, after default/old (ends by 2026-01-01T02:00:00Z)."


def _member(number: int, **fields: Json) -> Json:
    return pod(f"m{number}", "[{},{}]", annotations={names.GROUP: _GROUP}, **fields)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(
        """
        apiVersion: batch/v1
        kind: Job
        metadata: {name: new}
        spec:
          completions: 2
          parallelism: 2
          template:
            metadata:
              annotations:
                mooring.dev/interfaces: '[{},{}]'
                mooring.dev/group: '{"min": 2}'
            spec:
              schedulerName: mooring
              restartPolicy: Never
              containers: [{name: c, image: i}]
        """
    )
    return file


async def test_when_shows_what_the_leader_has_recorded(served: Served) -> None:
    message = f"group train: 0 of 2 members fit: no room. {_PROMISE}"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    for number in range(2):
        await served.add_pod(_member(number, status={"phase": "Pending", "conditions": [condition]}))
    status, out, _ = await served.run("when", "train", "-o", "json")
    assert status == 0
    (item,) = json.loads(out)["items"]
    assert (item["source"], item["start"]) == ("recorded", _PROMISE)
    _, out, _ = await served.run("groups", "train")
    assert _PROMISE in " ".join(out.split())


async def test_when_forecasts_the_start_of_a_group_without_a_promise(served: Served) -> None:
    """From the declared end of a pod that runs."""
    await served.add_node(node("n1", (pf(0, vfs=2),)))
    await served.add_node(node("n2", (pf(0, vfs=2),)))
    running = bound("old", "n1", (pf(0, vfs=2), 0, 0), (pf(0, vfs=2), 1, 0))
    running["metadata"]["annotations"][names.RUNS] = "2h"
    running["status"] = {"phase": "Running"}
    await served.add_pod(running)
    for number in range(2):
        await served.add_pod(_member(number))
    status, out, _ = await served.run("when", "train")
    assert status == 0
    assert "forecast" in out
    assert "It starts by " in out
    assert "after default/old (ends by " in out


async def test_when_rejects_a_group_that_does_not_exist(served: Served) -> None:
    status, _, wrong = await served.run("when", "none")
    assert status == 1
    assert 'groups "none" not found' in wrong


async def test_fits_names_the_nodes_of_a_job_that_would_start_now(served: Served, job: Path) -> None:
    """Nothing is created."""
    for name in ("n1", "n2"):
        await served.add_node(node(name, (pf(0, vfs=2),)))
    status, out, _ = await served.run("fits", "-f", str(job), "-o", "json")
    assert status == 0
    assert json.loads(out)["items"] == [{"owner": "Job/new", "pods": 2, "bound": 2, "nodes": ["n1", "n2"], "why": ""}]
    pods: Json = json.loads(await served.client.request("GET", "/api/v1/pods"))
    assert pods["items"] == []


async def test_fits_counts_jobs_of_one_name_in_two_files_apart(served: Served, job: Path, tmp_path: Path) -> None:
    """As two files for two namespaces have them: each needs its own room."""
    for name in ("n1", "n2"):
        await served.add_node(node(name, (pf(0, vfs=2),)))
    other = tmp_path / "other.yaml"
    other.write_text(job.read_text())
    status, out, _ = await served.run("fits", "-f", str(job), "-f", str(other), "-o", "json")
    (item,) = json.loads(out)["items"]
    assert (status, item["pods"], item["bound"]) == (1, 4, 2)


async def test_fits_says_what_is_in_the_way(served: Served, job: Path) -> None:
    await served.add_node(node("n1", (pf(0, vfs=2),)))
    status, out, _ = await served.run("fits", "-f", str(job))
    assert status == 1
    assert "Job/new      2   waits " in out
    assert "1 of 2 members fit" in out
    assert "not enough free RDMA VFs" in out


async def test_fits_reports_a_file_that_it_cannot_use(served: Served, tmp_path: Path) -> None:
    unknown = tmp_path / "unknown.yaml"
    unknown.write_text("kind: Strange\nspec: {template: {spec: {containers: [{name: c}]}}}\n")
    status, _, wrong = await served.run("fits", str(unknown))
    assert (status, "how many pods its controller makes is not known" in wrong) == (1, True)
    assert (await served.run("fits", str(tmp_path / "none.yaml")))[0] == 1
