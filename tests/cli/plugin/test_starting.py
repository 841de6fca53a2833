"""`kubectl mooring when` and `kubectl mooring fits` against an API server."""

import json
import re
from pathlib import Path

import pytest

from mooring import names
from tests.cli.plugin.cluster import Json, Served, bound, node, pf, pod

_GROUP = '{"name":"train","min":2,"runs":"1h"}'
ROOT = Path(__file__).parents[3]
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


async def test_fits_starts_the_jobs_of_the_documentation(served: Served, tmp_path: Path) -> None:
    """Groups by labels that controllers set, and those of one controller, are whole."""
    labels = {"example.com/rack": "r1", "network.topology.nvidia.com/leaf": "l1"}
    for number in range(8):
        one = node(f"n{number}", (pf(0, vfs=8), pf(1, vfs=8)))
        one["metadata"]["labels"] = labels
        await served.add_node(one)
    page = (ROOT / "docs/jobs.md").read_text(encoding="utf-8")
    for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL):
        file = tmp_path / "job.yaml"
        for manifest in (text, text.replace('"name": "train-4", ', "")):
            file.write_text(manifest)
            status, out, _ = await served.run("fits", "-f", str(file))
            assert status == 0, out


_RAY = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: ray}
spec:
  headGroupSpec: {template: &pod {metadata: {annotations: {
    mooring.dev/interfaces: '[{}]', mooring.dev/group: 'GROUP'}},
    spec: {schedulerName: mooring, containers: [{name: ray, image: x}]}}}
  workerGroupSpecs: [{groupName: w, replicas: 3, template: *pod}]
"""


@pytest.mark.parametrize(
    "group",
    [
        '{"name_from": "ray.io/cluster", "role_from": "ray.io/node-type", "roles": {"head": 1, "worker": 3}}',
        '{"min": 4}',
    ],
)
async def test_fits_counts_the_roles_of_a_cluster(served: Served, tmp_path: Path, group: str) -> None:
    """All four start together, or none."""
    file = tmp_path / "ray.yaml"
    file.write_text(_RAY.replace("GROUP", group))
    await served.add_node(node("n1", (pf(0, vfs=3),)))
    status, out, _ = await served.run("fits", "-f", str(file))
    assert (status, "3 of 4 members fit" in out) == (1, True)
    await served.add_node(node("n2", (pf(0, vfs=1),)))
    assert (await served.run("fits", "-f", str(file)))[0] == 0


async def test_fits_names_a_label_whose_value_it_does_not_know(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "ray.yaml"
    file.write_text(_RAY.replace("GROUP", '{"name_from": "example.com/job", "min": 4}'))
    status, _, wrong = await served.run("fits", "-f", str(file))
    assert (status, "RayCluster/ray: the value of its pods' label 'example.com/job' is not known" in wrong) == (1, True)


_MEMBERS = """
- kind: Pod
  metadata: {name: NAME, labels: {part: worker}, annotations: {
    mooring.dev/interfaces: '[{},{}]', mooring.dev/group: 'GROUP'}}
  spec: {schedulerName: mooring, containers: [{name: c, image: i}]}
"""


def _member_file(directory: Path, group: str, *members: str) -> str:
    file = directory / "members.yaml"
    items = "".join(_MEMBERS.replace("NAME", member).replace("GROUP", group) for member in members)
    file.write_text(f"kind: List\nitems:{items}")
    return str(file)


async def test_fits_does_not_count_a_pod_twice_that_exists(served: Served, tmp_path: Path) -> None:
    """Only the namespace and name of a Pod say that it is the same."""
    group = '{"name":"train","min":4}'
    await served.add_node(node("n1", (pf(0, vfs=16),)))
    old = bound("m0", "n1", (pf(0, vfs=16), 0, 0), (pf(0, vfs=16), 1, 0))
    old["metadata"]["annotations"][names.GROUP] = group
    await served.add_pod(old)
    for name in ("m1", "m2"):
        await served.add_pod(pod(name, "[{},{}]", annotations={names.GROUP: group}))
    await served.add_pod(pod("over", "[{}]", status={"phase": "Succeeded"}))
    status, out, _ = await served.run("fits", "-f", _member_file(tmp_path, group, "m0", "m1", "m2", "over"))
    rows = [line.split(maxsplit=3) for line in out.splitlines()[1:]]
    existing = [
        ["Pod/m0", "0", "-", "exists already: on node n1"],
        ["Pod/m1", "0", "-", "exists already, waits"],
        ["Pod/m2", "0", "-", "exists already, waits"],
        ["Pod/over", "0", "-", "exists already, has ended"],
    ]
    assert (status, rows) == (0, existing)
    file = _member_file(tmp_path, group, "m0", "m1", "m2", "m3")
    status, out, _ = await served.run("fits", "-f", file, "-o", "json")
    items = {one["owner"]: (one["pods"], one["bound"]) for one in json.loads(out)["items"]}
    assert (status, items) == (0, {"Pod/m3": (1, 1), **dict.fromkeys(("Pod/m0", "Pod/m1", "Pod/m2"), (0, 0))})
    status, out, _ = await served.run("fits", "-f", file, "-n", "other")
    assert (status, "exists already" in out) == (0, False)


async def test_fits_says_how_many_members_a_group_lacks(served: Served, tmp_path: Path) -> None:
    await served.add_node(node("n1", (pf(0, vfs=16),)))
    status, out, _ = await served.run("fits", "-f", _member_file(tmp_path, '{"name":"t","min":4}', "a", "b", "c"))
    assert (status, out.count("group t: 3 of at least 4 members exist")) == (1, 3)
    group = '{"name":"t","role_from":"part","roles":{"head":1,"worker":4}}'
    status, out, _ = await served.run("fits", "-f", _member_file(tmp_path, group, "a", "b", "c", "d"))
    assert (status, out.count("group t: 4 of at least 5 members exist, 1 of role 'head' missing")) == (1, 4)
