"""`kubectl mooring` against an API server: what it reads, with which rights, how fast, and what it prints."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
import yaml

from bench.plugin import fill, timed
from bench.served import apiservers
from mooring import names
from mooring.annotations.pf_terms import Access
from tests.cli.plugin.cluster import Json, Served, bound, node, pf, pod
from tests.support.listener import listening


async def two_nodes(served: Served) -> None:
    """Fill a cluster with two nodes and a pod that holds two VFs of the first."""
    for name in ("n1", "n2"):
        await served.add_node(node(name, (pf(0), pf(1))))
    await served.add_pod(bound("a", "n1", (pf(0), 0, 5000), (pf(1), 1, 0)))


def keys(value: object) -> object:
    """Return a document's shape: its fields, and the types of their values; of a list its first entry."""
    if isinstance(value, dict):
        return {key: keys(one) for key, one in value.items()}
    return [keys(value[0])] if isinstance(value, list) and value else type(value).__name__


async def test_nodes_and_pods_are_shown_as_the_api_has_them(served: Served) -> None:
    """The tables have the columns for people; nothing is written to stderr."""
    await two_nodes(served)
    status, out, err = await served.run("nodes")
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()][:2] == [
        ["NODE", "STATE", "PF", "NETWORK", "LINK", "FREE", "USED", "OUT", "LEFT-MBPS"],
        ["n1", "ready", "pf0", "rail0", "up", "3", "1", "0", "85000"],
    ]
    _, out, _ = await served.run("pods", "-n", "default")
    assert [line.split() for line in out.splitlines()][1:] == [
        ["a", "Running", "n1", "pf0", "0", "rail0", "5000", "-"],
        ["a", "Running", "n1", "pf1", "1", "rail1", "-", "-"],
    ]
    _, out, _ = await served.run("pods", "-n", "kube-system")
    assert out == "no pods with interfaces\n"


async def test_json_keeps_its_fields_and_yaml_says_the_same(served: Served) -> None:
    """Programs hang on these names: a change here is a new version."""
    await two_nodes(served)
    _, out, _ = await served.run("nodes", "-o", "json")
    document = json.loads(out)
    numbers = {"line": "int", "offered": "int", "reserved": "int", "left": "int"}
    vfs = {"offered": "int", "free": "int", "used": "int", "out": "int"}
    text: Json = dict.fromkeys(("name", "pci", "network", "link"), "str")
    own: Json = text | {
        "rdma": "NoneType",
        "up": "bool",
        "numa": "NoneType",
        "vfs": vfs,
        "mbps": numbers,
        "rates": {"min_tx_rate": "str", "max_tx_rate": "str"},
        "port": "NoneType",
        "pcie": "list",
        "vf_netdevs": "NoneType",
        "namespaces": "list",
        "max_share": "NoneType",
        "out": "list",
    }
    item = {"metadata": {"name": "str"}, "node": "str", "ready": "bool", "fault": "str", "pfs": [own]}
    item |= {"shares": "list"}
    assert keys(document) == {"kind": "str", "v": "int", "items": [item], "notes": "list"}
    assert (document["kind"], document["v"]) == ("MooringNodes", 1)
    _, out, _ = await served.run("nodes", "-o", "yaml")
    assert yaml.safe_load(out) == document
    _, out, _ = await served.run("pods", "-A", "-o", "json")
    vf: Json = dict.fromkeys(("pf", "pci", "link", "network"), "str") | {"vf": "int", "min_tx_rate": "int"}
    vf |= {"name": "NoneType", "containers": "NoneType", "netdev": "NoneType"}
    about: Json = dict.fromkeys(("namespace", "name", "uid", "state", "why", "node"), "str")
    about |= {"metadata": dict.fromkeys(("namespace", "name", "uid"), "str")}
    assert keys(json.loads(out)) == {"kind": "str", "v": "int", "items": [about | {"vfs": [vf]}], "notes": "list"}
    _, out, _ = await served.run("doctor", "-o", "json")
    fields = ("kind", "v", "ok", "version", "scheduler", "checks", "nodes", "findings", "notes")
    assert tuple(json.loads(out)) == fields


def found_by(out: str) -> set[tuple[str, str, str]]:
    """Return level, subject and text of what `doctor -o json` has found."""
    return {(one["level"], one["subject"], one["found"]) for one in json.loads(out)["findings"]}


async def test_the_doctor_names_groups_that_are_half_placed(served: Served) -> None:
    """In any namespace; their pods' scheduler is one that is asked about."""
    await two_nodes(served)
    group = {names.GROUP: '{"name":"train","min":2}'}
    half = bound("rank-0", "n2", (pf(0), 0, 0))
    half["metadata"]["annotations"] |= group
    await served.add_pod(half)
    await served.add_pod(pod("rank-1", "[{}]", annotations=group))
    _, out, _ = await served.run("doctor", "-o", "json")
    finding = ("warning", "group/default/train", "1 of at least 2 members are placed")
    assert finding in found_by(out)
    _, out, _ = await served.run("doctor", "-o", "json", "--scheduler", "other")
    assert finding not in found_by(out)


async def test_explain_tells_the_latest_decision_by_its_event(served: Served) -> None:
    """The output has the reasons for the node, and the VFs."""
    await two_nodes(served)
    found: Json = json.loads(await served.client.request("GET", "/api/v1/namespaces/default/pods/a"))
    why = {"v": 1, "node": "n1", "nodes": 2, "scores": {"RdmaVfs": 90}, "pfs": {"pf0": [0], "pf1": [1]}}
    event = {
        "metadata": {"name": "a.1", "namespace": "default", "annotations": {names.WHY: json.dumps(why)}},
        "involvedObject": {"kind": "Pod", "name": "a", "namespace": "default", "uid": found["metadata"]["uid"]},
        "reason": "Scheduled",
        "message": "Successfully assigned default/a to n1",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    await served.post("/api/v1/namespaces/default/events", event)
    status, out, _ = await served.run("explain", "a")
    assert status == 0
    assert "event 2026-01-01T00:00:00Z" in out
    assert await served.run("explain", "a", "--recompute") == (0, out, "")
    assert "scores of 'n1', the best of 2 nodes" in out
    assert "RdmaVfs         90" in out
    _, out, _ = await served.run("explain", "a", "-o", "json")
    assert json.loads(out)["decision"] == why


async def test_explain_decides_again_about_a_pending_pod_and_names_every_node(served: Served) -> None:
    """Every node is named, also where a reason refuses more nodes than an event names."""
    for number in range(12):
        await served.add_node(node(f"n{number:02}", (pf(0, vfs=1),)))
    await served.add_node(node("other"))
    await served.add_node(node("theirs", (pf(0, access=Access(("team-a",))),)))
    await served.lead()
    await served.add_pod(pod("wants", "[{},{}]"))
    status, out, _ = await served.run("explain", "wants", "-o", "json")
    assert status == 0
    document = json.loads(out)
    assert document["source"] == "recomputed"
    assert document["message"].startswith("0/14 nodes are available: ")
    assert document["decision"]["refused"]["network 'rail0' is for namespaces team-a"] == ["theirs"]
    refused = [name for those in document["decision"]["refused"].values() for name in those]
    assert sorted(refused) == [*(f"n{number:02}" for number in range(12)), "other", "theirs"]
    await served.add_pod(pod("fits", "[{}]"))
    _, out, _ = await served.run("explain", "fits")
    assert "would be bound to n00" in out
    member = pod("member", "[{}]")
    member["metadata"]["annotations"][names.GROUP] = '{"name":"train","min":2}'
    await served.add_pod(member)
    _, out, _ = await served.run("explain", "member")
    assert "without its group train: would be bound to n00" in out
    await served.add_pod(pod("wrong", '[{"x":1}]'))
    _, out, _ = await served.run("explain", "wrong")
    assert "unknown field" in out


async def test_explain_decides_by_volumes_and_by_other_pods_too(served: Served) -> None:
    """All that the scheduler lists is listed, and read as it reads it."""
    await two_nodes(served)
    slow = {"metadata": {"name": "slow"}, "provisioner": "p", "volumeBindingMode": "Immediate"}
    await served.post("/apis/storage.k8s.io/v1/storageclasses", slow)
    asks = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "slow"}
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    await served.post(claims, {"metadata": {"name": "data"}, "spec": asks})
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    containers = [{"name": "c", "image": "i"}]
    await served.add_pod(pod("stores", "[{}]", spec={"volumes": [volume], "containers": containers}))
    _, out, _ = await served.run("explain", "stores")
    assert "pod has unbound immediate PersistentVolumeClaims" in out
    apart = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}
    alone = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}}
    for number in (1, 2):
        await served.add_pod(bound(f"b{number}", f"n{number}", (pf(0), 3, 0), labels={"app": "a"}))
    await served.add_pod(pod("alone", "[{}]", spec=alone))
    _, out, _ = await served.run("explain", "alone")
    assert "2 node(s) didn't match pod anti-affinity rules" in out


async def test_explain_leaves_to_a_nominated_pod_what_is_kept_for_it(served: Served) -> None:
    """Its status nominates n1: it gets most of the node's CPU before the other pod."""
    await served.add_node(node("n1", (pf(0),)))
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "5"}}}]
    nominated = {"phase": "Pending", "nominatedNodeName": "n1"}
    await served.add_pod(pod("first", "[{}]", spec={"containers": containers}, status=nominated))
    await served.add_pod(pod("second", "[{}]", spec={"containers": containers}))
    _, out, _ = await served.run("explain", "second")
    assert "0/1 nodes are available: 1 Insufficient cpu" in out
    _, out, _ = await served.run("explain", "first")
    assert "would be bound to n1" in out


async def test_explain_names_the_victim_that_no_disruption_budget_protects(served: Served) -> None:
    """Two nodes whose VFs are given away, to pods below this one."""
    high = {"metadata": {"name": "high"}, "value": 10}
    await served.post("/apis/scheduling.k8s.io/v1/priorityclasses", high)
    for name in ("n1", "n2"):
        await served.add_node(node(name, (pf(0, vfs=1),)))
        await served.add_pod(bound(f"on-{name}", name, (pf(0), 0, 0), labels={"on": name}))
    for protected, goes in (("n1", "on-n2"), ("n2", "on-n1")):
        selector = {"matchLabels": {"on": protected}}
        budget = {"metadata": {"name": f"b-{protected}"}, "spec": {"minAvailable": 1, "selector": selector}}
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        await served.post(path, budget)
        await served.add_pod(pod("above", "[{}]", spec={"priorityClassName": "high"}))
        _, out, _ = await served.run("explain", "above", "-o", "json")
        assert json.loads(out)["decision"]["preemption"]["victims"] == [f"default/{goes}"]
        await served.client.request("DELETE", f"{path}/b-{protected}")
        await served.client.request("DELETE", "/api/v1/namespaces/default/pods/above")


async def test_what_cannot_be_had_ends_with_a_sentence_and_status_1(served: Served, tmp_path: Path) -> None:
    """No traceback, whatever is wrong: the pod, the file, the context, the server."""
    status, _, err = await served.run("explain", "nobody")
    assert status == 1
    assert err == 'Error from server (NotFound): pods "nobody" not found\n'
    status, _, err = await served.run("nodes", "--context", "elsewhere")
    assert status == 1
    assert err.startswith(
        f"error: kubeconfig '{served.kubeconfig}' cannot be used: it has no context 'elsewhere'; its "
    )
    with pytest.raises(SystemExit) as usage:
        await served.run("nodes", "--colour", "some")
    assert usage.value.code == 1


@pytest.mark.parametrize(
    "argv",
    [
        ("explain", "../../../nodes"),
        ("explain", "a/log"),
        ("explain", "a?watch=1"),
        ("pods", "-n", "../.."),
        ("nodes", "--request-timeout", "0"),
        ("nodes", "--request-timeout", "nan"),
        ("top", "--most", "-1"),
    ],
)
async def test_what_is_neither_a_name_nor_a_number_is_wrong_usage(served: Served, argv: tuple[str, ...]) -> None:
    """A name becomes a part of a path: it must not lead elsewhere."""
    with pytest.raises(SystemExit) as usage:
        await served.run(*argv)
    assert usage.value.code == 1


async def test_an_object_that_cannot_be_read_is_left_out_by_name(served: Served) -> None:
    """The other objects are shown."""
    await two_nodes(served)
    broken = node("odd", (pf(),), inventory="{")
    await served.add_node(broken)
    status, out, _ = await served.run("nodes")
    assert status == 0
    assert "annotation 'mooring.dev/inventory'" in out
    assert len(out.splitlines()) == 1 + 4 + 1


async def test_a_right_that_is_missing_is_named_and_the_rest_is_shown(guarded: Served, tmp_path: Path) -> None:
    """The user may only list nodes."""
    await two_nodes(guarded)
    await guarded.restrict("nodes")
    status, out, err = await guarded.run("nodes")
    assert status == 0
    assert out.splitlines()[1].split()[5:] == ["?", "?", "0", "?"]
    assert err == "Warning: forbidden: needs the right to list pods\n"
    status, out, err = await guarded.run("pods")
    assert (status, out) == (1, "")
    assert err == (
        'Error from server (Forbidden): pods is forbidden: User "system:serviceaccount:default:person" cannot list '
        'resource "pods" in API group "" in the namespace "default"\n'
    )
    status, out, _ = await guarded.run("doctor", "-o", "json")
    assert sorted(json.loads(out)["notes"]) == [
        "forbidden: needs the right to list leases.coordination.k8s.io",
        "forbidden: needs the right to list pods",
        "forbidden: needs the right to list validatingadmissionpolicies.admissionregistration.k8s.io",
        "forbidden: needs the right to list validatingadmissionpolicybindings.admissionregistration.k8s.io",
    ]


async def test_who_interrupts_a_command_that_waits_sees_nothing_more(tmp_path: Path) -> None:
    """The server takes the request and does not answer.

    A shell starts its background jobs with SIGINT ignored, and Python leaves it so: the command starts as a person's.
    """
    asked = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()

    async with listening(listen) as port:
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "c"}}
        config = {"clusters": [cluster], "users": [{"name": "c", "user": {}}], "contexts": [context]}
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(config | {"current-context": "c"}))
        command = (sys.executable, "-m", "cli", "nodes", "--kubeconfig", str(kubeconfig))
        argv = ("env", "--default-signal=INT", *command)
        process = await asyncio.create_subprocess_exec(*argv, stdout=PIPE, stderr=PIPE)
        async with asyncio.timeout(90):
            await asked.wait()
            process.send_signal(signal.SIGINT)
            assert await process.communicate() == (b"", b"")
    assert process.returncode == 130


async def test_a_terminal_of_few_letters_gets_the_others_escaped(served: Served) -> None:
    """Messages may hold any character; YAML and JSON are ASCII already."""
    await served.add_node(node("n1", (pf(0),)))
    odd = {"type": "PodScheduled", "status": "False", "reason": "InvalidRequest", "message": "\u00e4\u202e\x9b"}
    await served.add_pod(pod("a", "[{}]", status={"phase": "Pending", "conditions": [odd]}))
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "KUBECONFIG": str(served.kubeconfig)}
    for output, shown in (
        ("wide", "\\xe4\\ufffd\\ufffd"),
        ("json", '"\\u00e4\\u202e\\u009b"'),
        ("yaml", '"\\xE4\\u202E\\x9B"'),
    ):
        argv = (sys.executable, "-m", "cli", "pods", "-o", output)
        process = await asyncio.create_subprocess_exec(*argv, env=environment, stdout=PIPE)
        out, _ = await process.communicate()
        assert process.returncode == 0
        assert shown in out.decode("ascii")


@pytest.mark.kubectl
async def test_kubectl_finds_the_plugin_on_the_path_and_passes_its_status_on(served: Served, tmp_path: Path) -> None:
    """kubectl is run as a user runs it."""
    await two_nodes(served)
    script = tmp_path / "bin" / "kubectl-mooring"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cli "$@"\n')
    script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}", "KUBECONFIG": str(served.kubeconfig)}

    async def run(*argv: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec("kubectl", "mooring", *argv, env=environment, stdout=PIPE)
        out, _ = await process.communicate()
        return process.returncode, out.decode()

    status, out = await run("nodes")
    assert status == 0
    assert out.splitlines()[1].startswith("n1")
    assert "\x1b" not in out
    status, out = await run("doctor")
    assert status == 1
    assert "ValidatingAdmissionPolicy is missing" in out


def test_a_thousand_nodes_take_no_longer_than_the_start_of_the_command(tmp_path: Path) -> None:
    """The command's own CPU time is compared with that on an empty cluster: both are as slow as the machine is."""
    with apiservers.devcluster(tmp_path) as kubeconfig:
        without = least_cpu_s(kubeconfig)
        asyncio.run(fill(kubeconfig, 1000, 1000))
        assert least_cpu_s(kubeconfig) < 2 * without


def least_cpu_s(kubeconfig: Path) -> float:
    return min(timed(kubeconfig, ("nodes",))[1] for _ in range(3))
