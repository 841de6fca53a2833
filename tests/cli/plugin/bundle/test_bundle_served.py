"""`support-bundle` against an API server, and every reading command on the bundle: the same output as live."""

import json
import os
import re
import stat
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from aiohttp import ClientSession, web

from cli.plugin.bundle.archive import writing
from cli.plugin.bundle.contents import AROUND, NODES, PODS
from cli.plugin.bundle.layout import MANIFEST, ListResult, Manifest, page_member
from cli.plugin.reports.recompute import PATHS
from mooring import names
from mooring.annotations.drain import DRAINED
from mooring.annotations.inventory import Out
from mooring.indexes import Indexes
from tests.cli.plugin.cluster import Json, Served, bound, node, pf, pod, waiting

SECRET = "correct-horse-battery"
EVENTS = "/api/v1/namespaces/default/events"
LABELS = {"app.kubernetes.io/name": "mooring-scheduler", "app.kubernetes.io/version": "0.2.0"}


async def cluster(served: Served) -> None:
    """Fill a cluster with something of everything that the commands show."""
    out = (Out(Indexes.of(range(4)), DRAINED),)
    await served.add_node(node("n1", (pf(0), pf(1))))
    await served.add_node(node("n2", (pf(0, out=out), pf(1, up=False))))
    await served.add_node(node("bare"))
    texts = {names.DRAIN: '["pf0"]', names.DRAIN_REASONS: '{"pf0":"new cable"}'}
    await served.patch("/api/v1/nodes/n2", {"metadata": {"annotations": texts, "labels": {"rack": "r2"}}})
    uid = await served.add_pod(bound("a", "n1", (pf(0), 0, 5000), (pf(1), 1, 0), labels={"app": "x"}))
    await served.add_pod(bound("over", "n1", (pf(0), 0, 5000)) | {"status": {"phase": "Succeeded"}})
    await served.add_pod(pod("typo", '[{"min":1}]', status=waiting("InvalidRequest", "unknown field")))
    await served.add_pod(pod("waits", "[{}]", status=waiting("Unschedulable", "0/3 nodes are available")))
    for rank in range(2):
        member = pod(f"rank-{rank}", "[{}]", annotations={names.GROUP: '{"name":"train","min":3}'})
        await served.add_pod(member)
    await served.add_pod(pod("other", spec={"schedulerName": "default-scheduler"}, labels={"app": "x"}))
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await served.add_pod(pod("s-1", labels=LABELS, spec={"schedulerName": "default-scheduler"}, status=ready))
    why = {"v": 1, "node": "n1", "nodes": 3, "scores": {"RdmaVfs": 90}, "pfs": {"pf0": [0], "pf1": [1]}}
    event = {
        "metadata": {"name": "a.1", "namespace": "default", "annotations": {names.WHY: json.dumps(why)}},
        "involvedObject": {"kind": "Pod", "name": "a", "namespace": "default", "uid": uid},
        "reason": "Scheduled",
        "message": "Successfully assigned default/a to n1",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    await served.post(EVENTS, event)
    await served.lead()


def shown(result: tuple[int, str, str]) -> tuple[int, str, list[str]]:
    """Return what a command gave, without ages; warnings come in the order of the answers."""
    status, *texts = result
    out, err = (re.sub(r"\d+ s ago", "… s ago", text) for text in texts)
    return status, out, sorted(err.splitlines())


async def taken(served: Served, path: Path) -> tuple[str, str]:
    status, out, err = await served.run("support-bundle", "-o", str(path))
    assert status == 0, err
    return out, err


COMMANDS = (
    "nodes", "nodes -o wide", "nodes -o json", "nodes n2 n9", "nodes -l rack=r2", "nodes -o name", "nodes -o yaml",
    "pods", "pods -A -o wide", "pods -A -o json", "pods a", "pods nobody", "pods -n kube-system", "pods -l app=x",
    "gpus", "gpus -o json", "groups", "groups -A -o wide", "groups train", "groups nobody", "groups -o json",
    "top", "top -o json", "top --most 1", "status", "status --without-guard -o json", "doctor", "doctor -o json",
    "explain a", "explain a -o json", "explain waits", "explain waits --recompute -o json", "explain typo",
    "explain group/train", "explain group/train --recompute", "explain job/none", "explain nobody", "explain other",
)  # fmt: skip


async def test_every_reading_command_gives_the_same_from_a_bundle(served: Served, tmp_path: Path) -> None:
    """Output, errors and exit status, apart from ages in words."""
    await cluster(served)
    path = tmp_path / "b.tar.gz"
    await taken(served, path)
    live = {line: await served.run(*line.split()) for line in COMMANDS}
    served.kubeconfig.unlink()
    for line, result in live.items():
        found = await served.run_alone(*line.split(), "--from", str(path))
        assert shown(found) == shown(result), line


async def test_ages_are_those_of_the_moment_when_the_bundle_was_taken(served: Served, tmp_path: Path) -> None:
    """A Lease of that moment does not expire in an archive."""
    await cluster(served)
    path = tmp_path / "b.tar.gz"
    await taken(served, path)
    copy = changed(path, tmp_path / "old.tar.gz", lambda manifest: {**manifest, "taken_at": manifest["taken_at"] + 90})
    _, out, _ = await served.run_alone("status", "--without-guard", "--from", str(path))
    assert re.search(r"s-1 leads: it renewed Lease '.*' \d s ago", out)
    _, out, _ = await served.run_alone("status", "--without-guard", "--from", str(copy))
    assert "was last renewed 9" in out


def changed(path: Path, target: Path, change: object) -> Path:
    """Copy a bundle with another manifest."""
    assert callable(change)
    with tarfile.open(path) as archive, writing(target, 0) as writer:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            content = file.read()
            writer.add(
                member.name, json.dumps(change(json.loads(content))).encode() if member.name == MANIFEST else content
            )
    return target


async def test_without_a_right_a_bundle_says_so_as_the_command_would(guarded: Served, tmp_path: Path) -> None:
    """The rest is there; what is missing is noted when it is taken, too."""
    await cluster(guarded)
    await guarded.restrict("nodes", "events")
    path = tmp_path / "b.tar.gz"
    _, err = await taken(guarded, path)
    assert "forbidden: needs the right to list pods\n" in err
    for line in ("nodes", "doctor", "pods -A", "groups -A", "status"):
        live = await guarded.run(*line.split())
        found = await guarded.run_alone(*line.split(), "--from", str(path))
        assert shown(found) == shown(live), line


async def test_the_lease_is_read_with_the_right_to_list_it_by_its_name(guarded: Served, tmp_path: Path) -> None:
    """Pods of a scheduler whose Lease may not be listed do not hide the others."""
    await cluster(guarded)
    await guarded.add_pod(pod("foreign", "[{}]", spec={"schedulerName": "another"}))
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["mooring-scheduler"]}
    await guarded.restrict("nodes", "pods", "events", verbs=("get", "list"), rules=[lease | {"verbs": ["list"]}])
    path = tmp_path / "b.tar.gz"
    await taken(guarded, path)
    for line in ("status", "status --scheduler another", "explain foreign"):
        live = await guarded.run(*line.split())
        found = await guarded.run_alone(*line.split(), "--from", str(path))
        assert shown(found) == shown(live), line


async def test_a_lease_that_was_not_read_is_not_taken_for_missing(served: Served, tmp_path: Path) -> None:
    await cluster(served)
    path = tmp_path / "b.tar.gz"
    await taken(served, path)
    _, out, _ = await served.run_alone("status", "--scheduler", "unheard-of", "--from", str(path))
    assert "its Lease could not be read" in out


@asynccontextmanager
async def kubelet(served: Served, name: str, log: str) -> AsyncIterator[None]:
    """Serve a node whose kubelet has this log of each container."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=log)

    application = web.Application()
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    document = node(name, (pf(0),))
    document["status"]["addresses"] = [{"type": "InternalIP", "address": "127.0.0.1"}]
    document["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": runner.addresses[0][1]}}
    await served.add_node(document)
    try:
        yield
    finally:
        await runner.cleanup()


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {member.name: file.read() for member in archive if (file := archive.extractfile(member)) is not None}


async def test_no_planted_secret_is_in_a_bundle(served: Served, tmp_path: Path) -> None:
    """In objects, annotations, events and logs; Secrets and ConfigMaps are not read at all."""
    await cluster(served)
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": [{"value": SECRET}]})}
    container: Json = {
        "name": "c", "image": "i", "env": [{"name": "PASSWORD", "value": SECRET}], "command": ["run", SECRET],
    }  # fmt: skip
    spec = {"containers": [container], "nodeName": "k1"}
    await served.post("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}, "stringData": {"k": SECRET}})
    await served.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}, "data": {"k": SECRET}})
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}
    labels = {"app.kubernetes.io/part-of": "mooring"}
    deployment = {
        "metadata": {"name": "mooring-scheduler", "labels": labels, "annotations": applied},
        "spec": {"selector": {"matchLabels": LABELS}, "template": template},
    }
    await served.post("/apis/apps/v1/namespaces/default/deployments", deployment)
    event = {
        "metadata": {"name": "x.1", "namespace": "default"}, "reason": "FailedScheduling",
        "involvedObject": {"kind": "Pod", "name": "waits", "namespace": "default"}, "message": f"token={SECRET}",
    }  # fmt: skip
    await served.post(EVENTS, event)
    log = f"started\nAuthorization: Bearer {SECRET}\npassword: {SECRET}\n"
    async with kubelet(served, "k1", log):
        await served.add_pod(pod("planted", "[{}]", annotations=applied, spec=spec))
        await served.add_pod(pod("s-2", labels=LABELS, spec={"nodeName": "k1", "containers": [container]}))
        out, _ = await taken(served, tmp_path / "b.tar.gz")
    assert "look through it before you send it" in out
    members = contents(tmp_path / "b.tar.gz")
    assert [name for name, content in members.items() if SECRET.encode() in content] == []
    assert members["mooring-support/logs/default/s-2/c.log"].startswith(b"started\nAuthorization: (removed)\n")
    pods = json.loads(members[page_member(PODS, 1)])
    planted = next(one for one in pods if one["metadata"]["name"] == "planted")
    assert planted["spec"]["containers"][0]["env"] == [{"name": "PASSWORD", "value": "(removed)"}]
    assert planted["metadata"]["annotations"][names.REQUEST] == "[{}]"
    (workload,) = json.loads(members[page_member("/apis/apps/v1/deployments", 1)])
    assert workload["metadata"]["name"] == "mooring-scheduler"


async def test_a_bundle_is_its_owners_and_explains_itself(served: Served, tmp_path: Path) -> None:
    """What is not reachable is noted, and the bundle is made."""
    await cluster(served)
    path = tmp_path / "b.tar.gz"
    _, err = await taken(served, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    members = contents(path)
    assert next(iter(members)) == "mooring-support/README.txt"
    assert b"kubectl mooring status --from THIS-FILE" in members["mooring-support/README.txt"]
    manifest = json.loads(members[MANIFEST])
    assert (manifest["kind"], manifest["v"], manifest["lists"][NODES]["pages"]) == ("MooringSupportBundle", 1, 1)
    assert all(note in err for note in manifest["notes"])
    assert "/log left out: " in err
    status, _, err = await served.run("support-bundle", "-o", str(path))
    assert (status, "exists already" in err) == (1, True)


@asynccontextmanager
async def proxying(served: Served, metrics: str) -> AsyncIterator[None]:
    """Put a server before the API server, which reaches the ports of pods as a real one does."""
    config = json.loads(served.kubeconfig.read_text())
    behind = config["clusters"][0]["cluster"]

    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith("/proxy/metrics"):
            return web.Response(text=metrics, status=200 if ":10259/" in request.path else 404)
        async with ClientSession() as session, session.get(f"{behind['server']}{request.path_qs}") as answered:
            body = await answered.read()
            return web.Response(body=body, status=answered.status, content_type="application/json")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}
    served.kubeconfig.write_text(json.dumps(config))
    try:
        yield
    finally:
        await runner.cleanup()


async def test_metrics_of_moorings_pods_are_read_through_the_api_server(served: Served, tmp_path: Path) -> None:
    """At the port by its name; other ports are left alone."""
    ports = [{"name": "web", "containerPort": 80}, {"name": "metrics", "containerPort": 10259}]
    spec = {"containers": [{"name": "c", "image": "i", "ports": ports}]}
    await served.add_pod(pod("s-1", labels=LABELS, spec=spec))
    async with proxying(served, f'mooring_up{{token="{SECRET}"}} 1\n'):
        await taken(served, tmp_path / "b.tar.gz")
    found = contents(tmp_path / "b.tar.gz")
    assert found["mooring-support/metrics/default/s-1.txt"] == b'mooring_up{token="(removed)"} 1\n'


async def test_a_bundle_has_what_recompute_reads() -> None:
    """The table stands apart from that of the report, which needs numpy."""
    expected = {path: kind.__name__ for kind, path in PATHS.items() if path not in (NODES, PODS)}
    assert expected == AROUND


@pytest.mark.parametrize("flags", ["nodes -w", "status --wait", "nodes --context lab", "nodes --kubeconfig f"])
async def test_a_bundle_is_read_in_place_of_a_cluster(served: Served, flags: str) -> None:
    with pytest.raises(SystemExit):
        await served.run_alone(*flags.split(), "--from", "b.tar.gz")
    assert "error: --from: not with --" in served.said()[1]


def crafted(path: Path, pods: bytes, **fields: object) -> Path:
    lists = {NODES: ListResult("Node", 1), PODS: ListResult("Pod", 1)}
    values: Json = {
        "taken_at": 1.0, "server": "https://x", "namespace": "default", "version": "0.2.0", "leases": [], "notes": [],
        "lists": lists,
    }  # fmt: skip
    with writing(path, 0) as writer:
        writer.add(MANIFEST, msgspec.json.encode({**msgspec.to_builtins(Manifest(**values)), **fields}))
        writer.add(page_member(NODES, 1), b"[]")
        writer.add(page_member(PODS, 1), pods)
    return path


@pytest.mark.parametrize(
    ("pods", "fields", "rule"),
    [
        (b"{", {}, "member 'mooring-support/api/api/v1/pods/0001.json': "),
        (b"[" * 100_000, {}, "member 'mooring-support/api/api/v1/pods/0001.json': "),
        (b'[{"metadata":' + b'{"a":' * 5000 + b"1" + b"}" * 5001 + b"]", {}, "maximum recursion depth exceeded"),
        (b"[" + b",".join([b"{}"] * 501) + b"]", {}, "has 501 objects"),
        (b'["\xff"]', {}, "member 'mooring-support/api/api/v1/pods/0001.json': "),
        (b"[]", {"v": 2}, "member 'mooring-support/manifest.json': "),
        (b"[]", {"lists": {PODS: {"kind": "Pod", "pages": 7}, NODES: {"kind": "Node", "pages": 1}}}, "is missing"),
        (b"[]", {"lists": {NODES: {"kind": "Node", "code": 403}}}, ""),
    ],
)  # fmt: skip
async def test_a_crafted_bundle_gets_an_error_in_a_line(
    served: Served, tmp_path: Path, pods: bytes, fields: Json, rule: str
) -> None:
    """No traceback."""
    path = crafted(tmp_path / "b.tar.gz", pods, **fields)
    status, _, err = await served.run_alone("pods", "-A", "--from", str(path))
    assert status == 1
    assert rule in err
    assert len(err.splitlines()) == 1


def test_a_bundle_that_grows_when_decoded_ends_at_the_limit_of_memory(tmp_path: Path) -> None:
    """The limit is lower here; each list of the page takes a hundred times its text."""
    growing = b'{"metadata":{"name":"a"},"x":[' + b"[]," * 300_000 + b"[]]}"
    path = crafted(tmp_path / "b.tar.gz", b"[" + b",".join([growing] * 15) + b"]")
    code = (
        "import sys\n"
        "from cli.plugin.bundle import memory\n"
        "memory.MOST_MEMORY_BYTES = 256 << 20\n"
        "from cli.__main__ import main\n"
        "sys.exit(main(['pods', '-A', '--from', sys.argv[1]]))\n"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    argv = [sys.executable, "-c", code, str(path)]
    ran = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 1
    assert "of memory is needed" in ran.stderr
    assert "Traceback" not in ran.stderr
