"""`./run demo --assess`: a cluster with a device plugin and a fault of each kind; `kubectl mooring assess` finds them.

No privileges are needed: the API server runs in this process, and the nodes are trees of simulated hosts.
"""

import asyncio
import contextlib
import io
import json
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.console import Console

from cli.__main__ import main as kubectl_mooring
from devcluster.apiserver.serve import ApiServer
from devcluster.demo.plugin_cluster import PLANTED, Json, PluginCluster, PluginPod, faulty
from mooring.kube.access import load_access
from mooring.kube.client import MERGE_PATCH, Client


def demonstrate(console: Console, html: str = "") -> int:
    """Return 0 if each planted fault is found and nothing else; ``html`` is where the page goes, if anywhere."""
    root = Path(tempfile.mkdtemp(prefix="mooring-assess-demo-"))
    try:
        return asyncio.run(_demonstrate(console, root, html))
    finally:
        shutil.rmtree(root, ignore_errors=True)


async def _demonstrate(console: Console, root: Path, html: str) -> int:
    kubeconfig = root / "kubeconfig"
    async with ApiServer() as server:
        kubeconfig.write_text(server.kubeconfig_text())
        async with Client(load_access(str(kubeconfig))) as client:
            cluster = await fill(client, faulty())
        console.print(
            f"{len(cluster.nodes)} nodes with a device plugin, sriov-cni and Multus, {len(cluster.pods)} pods"
        )
        await asyncio.to_thread(cluster.write_captures, root / "nodes", root / "trees")
        began = time.monotonic()
        flags = ["assess", "--nodes", str(root / "nodes"), "--kubeconfig", str(kubeconfig)]
        text, document = await asyncio.to_thread(_run, flags), await asyncio.to_thread(_run, [*flags, "-o", "json"])
        if html:
            await asyncio.to_thread(_run, [*flags, "--html", html])
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    found = {(one["kind"], one["subject"]) for one in json.loads(document)["findings"]}
    return _compare(console, found, time.monotonic() - began)


def _run(argv: list[str]) -> str:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(io.StringIO()):
        kubectl_mooring(argv)
    return shown.getvalue()


def _compare(console: Console, found: set[tuple[str, str]], took_s: float) -> int:
    planted = set(PLANTED.items())
    for kind, subject in PLANTED.items():
        sign = "[green]✔[/]" if (kind, subject) in found else "[red]✗[/]"
        console.print(f"{sign} {kind}: planted on {subject}")
    for kind, subject in sorted(found - planted):
        console.print(f"[red]✗[/] {kind}: found on {subject}, where nothing was planted")
    console.print(
        f"{len(found & planted)} of {len(planted)} planted faults found, {len(found - planted)} others ({took_s:.1f} s)"
    )
    return 0 if found == planted else 1


async def fill(client: Client, cluster: PluginCluster) -> PluginCluster:
    """Create the cluster's objects; return it with the uids that the API server chose."""
    pods: list[PluginPod] = []
    for path, objects in cluster.objects().items():
        for item in objects:
            if path.endswith("/nodes"):
                await _add(client, path, item, {"taints": None})
            elif path.endswith("/pods"):
                uid = await _add_pod(client, item)
                pods.append(replace(cluster.pods[len(pods)], uid=uid))
            else:
                group, _, resource = path.rpartition("/")
                await _post(
                    client, f"{group}/namespaces/default/{resource}", item | {"kind": "NetworkAttachmentDefinition"}
                )
    return replace(cluster, pods=tuple(pods))


async def _add(client: Client, path: str, item: Json, spec: Json) -> None:
    await _post(client, path, {"metadata": _metadata(item)})
    own = f"{path}/{item['metadata']['name']}"
    await _patch(client, own, {"spec": spec})
    await _patch(client, f"{own}/status", {"status": item["status"]})


async def _add_pod(client: Client, item: Json) -> str:
    path, spec = "/api/v1/namespaces/default/pods", dict(item["spec"])
    node = spec.pop("nodeName", "")
    made = await _post(client, path, {"metadata": _metadata(item), "spec": spec})
    own = f"{path}/{item['metadata']['name']}"
    if node:
        target = {"kind": "Node", "name": node}
        await _post(client, f"{own}/binding", {"metadata": {"name": item["metadata"]["name"]}, "target": target})
    await _patch(client, f"{own}/status", {"status": item["status"]})
    return str(made["metadata"]["uid"])


def _metadata(item: Json) -> Json:
    return {key: value for key, value in item["metadata"].items() if key not in ("uid", "creationTimestamp")}


async def _post(client: Client, path: str, document: Json) -> Json:
    made: Json = msgspec.json.decode(await client.request("POST", path, msgspec.json.encode(document)))
    return made


async def _patch(client: Client, path: str, document: Json) -> None:
    await client.request("PATCH", path, msgspec.json.encode(document), MERGE_PATCH)
