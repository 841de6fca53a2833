"""Answer `kubectl logs`: forward the request to the kubelet of the pod's node, and its answer to the client."""

import asyncio
from collections.abc import Sequence
from urllib.parse import urlencode

from aiohttp import web

from devcluster.apiserver import status
from devcluster.apiserver.call import Call
from devcluster.apiserver.cluster import NODES, PODS, Cluster
from devcluster.apiserver.http.netns import connect_in
from devcluster.apiserver.objects import Object, items, section

_PASSED_ON = ("follow", "previous", "tailLines")


async def relay(
    cluster: Cluster, namespaces: Sequence[str], call: Call, request: web.BaseRequest
) -> web.StreamResponse:
    """Stream a container's log; raise ApiError without one."""
    name, namespace = call.target.name or "", call.target.namespace or ""
    entry = cluster.store.get(PODS, namespace, name)
    if entry is None:
        raise status.not_found("", "pods", name)
    spec = section(entry.decoded(), "spec")
    container = call.query.get("container") or _only(name, spec)
    query = urlencode({key: call.query[key] for key in _PASSED_ON if key in call.query})
    path = f"/containerLogs/{namespace}/{name}/{container}?{query}"
    reader, writer = await _ask(namespaces, _kubelet(cluster, str(spec.get("nodeName", ""))), path)
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.split(maxsplit=2)[1] != b"200":
            raise status.bad_request((await reader.read()).decode())
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        while part := await reader.read(65536):
            await response.write(part)
        return response
    finally:
        writer.close()


async def _ask(
    namespaces: Sequence[str], address: tuple[str, int], path: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a GET to a kubelet in one of several network namespaces; HTTP/1.0, so that its end is the answer's end."""
    try:
        connected = await asyncio.to_thread(connect_in, namespaces, *address)
    except OSError as lost:
        raise status.ApiError(500, "InternalError", f"kubelet {address[0]}: {lost}") from lost
    reader, writer = await asyncio.open_connection(sock=connected)
    writer.write(f"GET {path} HTTP/1.0\r\nHost: kubelet\r\n\r\n".encode())
    return reader, writer


def _only(pod: str, spec: Object) -> str:
    names = [str(one["name"]) for one in items(spec, "containers")]
    if len(names) != 1:
        raise status.bad_request(
            f"a container name must be specified for pod {pod}, choose one of: [{' '.join(names)}]"
        )
    return names[0]


def _kubelet(cluster: Cluster, node: str) -> tuple[str, int]:
    entry = cluster.store.get(NODES, "", node)
    said = section(entry.decoded(), "status") if entry is not None else {}
    port = section(section(said, "daemonEndpoints"), "kubeletEndpoint").get("Port") or 0
    addresses = [one["address"] for one in items(said, "addresses") if one.get("type") == "InternalIP"]
    if not port or not addresses:
        raise status.bad_request(f"no kubelet serves logs for node {node!r}")
    return str(addresses[0]), int(port)
