"""`kubectl mooring assess` against an API server without Mooring: it only lists, and shows the report."""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cli.plugin.assess.job import arguments
from devcluster.demo.assess import fill
from devcluster.demo.plugin_cluster import PLANTED, faulty
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from mooring.kube.client import Client
from tests.cli.plugin.cluster import Served


async def test_the_command_only_lists_and_finds_what_is_planted(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses every write from now on; the report is the demonstration's."""
    cluster = await fill(served.client, faulty())
    cluster.write_captures(tmp_path / "nodes", tmp_path / "trees")
    requests: list[tuple[str, str]] = []
    ask = Client.request

    async def refuse_writes(self: Client, method: str, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        requests.append((method, path))
        assert method == "GET", f"{method} {path}"
        return await ask(self, method, path, params=params)

    monkeypatch.setattr(Client, "request", refuse_writes)
    status, out, err = await served.run("assess", "--nodes", str(tmp_path / "nodes"), "-o", "json")
    document = json.loads(out)
    assert status == 0, err
    assert [(one["kind"], one["subject"]) for one in document["findings"]] == list(PLANTED.items())
    assert ("GET", "/api/v1/pods") in requests
    assert not [path for _, path in requests if "secret" in path or "configmap" in path]


async def test_without_captures_the_pods_are_still_looked_at(served: Served) -> None:
    await fill(served.client, faulty())
    status, out, _ = await served.run("assess")
    assert status == 0
    assert "jobs that were started by halves: 1" in out
    assert "3 of 3 nodes have no capture here" in out


async def test_an_object_that_is_nested_deeply_hides_no_other(served: Served, tmp_path: Path) -> None:
    """Anybody may create objects of a custom kind with any fields; `--share` walks through all of them."""
    await fill(served.client, faulty())
    deep = json.loads("[" * 900 + "]" * 900)
    metadata = {"name": "deep", "annotations": {"mooring.dev/x": "[" * 900 + "]" * 900}}
    network = {"metadata": metadata, "spec": {"any": deep}}
    path = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions"
    await served.post(path, network | {"kind": "NetworkAttachmentDefinition"})
    status, out, err = await served.run("assess", "-o", "json")
    assert status == 0, err
    assert [one["kind"] for one in json.loads(out)["findings"]] == ["job-half-started"]
    status, _, err = await served.run("assess", "--share", str(tmp_path / "shared.tar.gz"))
    assert status == 0, err


async def test_a_user_who_may_not_list_pods_gets_kubectls_error(guarded: Served) -> None:
    await guarded.restrict("nodes")
    status, _, err = await guarded.run("assess")
    assert status == 1
    assert "pods is forbidden" in err


async def test_the_page_says_what_could_not_be_read(guarded: Served, tmp_path: Path) -> None:
    """A reader of the page sees no other output."""
    await guarded.restrict("nodes", "pods")
    status, _, err = await guarded.run("assess", "--html", str(tmp_path / "page.html"))
    assert status == 0, err
    (embedded,) = re.findall(r'id="report">(.*?)</script>', (tmp_path / "page.html").read_text(), re.DOTALL)
    assert "forbidden: needs the right to list resourceclaims.resource.k8s.io" in json.loads(embedded)["notes"]


async def test_the_printed_jobs_have_no_privilege_but_reading(served: Served) -> None:
    """Each runs on its node without a scheduler; a server takes the manifests."""
    for node in faulty().objects()["/api/v1/nodes"]:
        await served.add_node(node)
    status, out, _ = await served.run(
        "assess", "--print-job", "registry.example/mooring:1", "-n", "kube-system", "-o", "json"
    )
    jobs = json.loads(out)["items"]
    assert status == 0
    assert [job["spec"]["template"]["spec"]["nodeName"] for job in jobs] == ["n1", "n2", "n3"]
    for job in jobs:
        spec = job["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert all(mount["readOnly"] for mount in container["volumeMounts"])
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "privileged" not in container["securityContext"]
        assert spec["automountServiceAccountToken"] is False
        await served.post("/apis/batch/v1/namespaces/kube-system/jobs", job)


def test_a_jobs_arguments_write_an_archive_as_text(tmp_path: Path) -> None:
    """The log of the pod is what the operator decodes into NODE.tar.gz."""
    build(tmp_path / "sys", describe_host("n1", 1, vfs=2))
    given = [argument.replace("/host/", f"{tmp_path}/") for argument in arguments("n1")]
    command = [sys.executable, "-m", "advertiser", *given]
    # In a process of its own, as it configures the log of its whole process.
    written = subprocess.run(
        [*command, "--state", str(tmp_path / "state"), "--run", str(tmp_path / "run")], capture_output=True, check=True
    ).stdout
    assert base64.b64decode(written).startswith(b"\x1f\x8b")
