"""Write to the API server what a kubelet writes: pod status, the last delete, events, its node and its lease."""

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from devcluster.kubelet.plan import node
from devcluster.kubelet.plan.node import Machine
from devcluster.kubelet.plan.pods import Pod
from devcluster.kubelet.plan.status import Document, timestamp
from mooring.kube.client import MERGE_PATCH, STRATEGIC_PATCH, Client
from mooring.kube.failures import Conflict, KubeError, NotFound, Refused

_log = structlog.get_logger()
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_LONGEST_MESSAGE = 1024  # The API's limit for an event.


@dataclass(frozen=True, slots=True)
class Event:
    """An event about a pod; ``kind`` is Normal or Warning."""

    kind: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Api:
    """The API server as one node's kubelet uses it. Methods raise KubeError, whether repeating can help or not."""

    client: Client
    node: str

    async def write_status(self, pod: Pod, status: Document) -> None:
        """Patch a pod's status; leave a pod alone that is gone, replaced, or cannot be patched at all."""
        body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        try:
            await self._send("PATCH", f"{pod.path}/status", body, STRATEGIC_PATCH)
        except (NotFound, Conflict):
            pass
        except Refused as refused:
            _log.warning("pod status refused", pod=pod.path, uid=pod.metadata.uid, reason=str(refused))

    async def delete(self, pod: Pod) -> None:
        """Remove the pod from the API server for good; do nothing if it is gone or replaced."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        with contextlib.suppress(NotFound, Conflict):
            await self._send("DELETE", pod.path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})

    async def tell(self, pod: Pod, event: Event, count: int, now_s: float) -> None:
        """Write an event, or increase the count of the equal one; an event that cannot be written is only logged."""
        about, now = pod.metadata, timestamp(now_s)
        text = event.message[:_LONGEST_MESSAGE]
        digest = hashlib.sha256("\0".join((about.uid, event.reason, text)).encode()).hexdigest()[:16]
        path = f"/api/v1/namespaces/{about.namespace}/events"
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{about.name}.{digest}", "namespace": about.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": about.name,
                "namespace": about.namespace,
                "uid": about.uid,
            },
            "type": event.kind,
            "reason": event.reason,
            "message": text,
            "source": {"component": "kubelet", "host": self.node},
            "reportingComponent": "kubelet",
            "reportingInstance": self.node,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            if count == 1:
                await self._send("POST", path, body)
            else:
                again = {"count": count, "lastTimestamp": now}
                await self._send("PATCH", f"{path}/{about.name}.{digest}", again, MERGE_PATCH)
        except KubeError as lost:
            _log.warning("event not written", pod=f"{about.namespace}/{about.name}", reason=str(lost))

    async def services(self) -> Mapping[str, str]:
        """Return the variables with the address of the service `kubernetes`; none without it."""
        try:
            found = msgspec.json.decode(
                await self.client.request("GET", "/api/v1/namespaces/default/services/kubernetes")
            )
        except NotFound:
            return {}
        host, port = found["spec"]["clusterIP"], str(found["spec"]["ports"][0]["port"])
        return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    async def register(self, machine: Machine, now_s: float) -> None:
        """Create or update the node, make it Ready and remove the not-ready taint."""
        path = f"/api/v1/nodes/{machine.name}"
        try:
            await self._send("POST", "/api/v1/nodes", node.node(machine))
        except Conflict:
            await self._send("PATCH", path, {"metadata": {"labels": node.labels(machine)}}, MERGE_PATCH)
        await self._send("PATCH", f"{path}/status", {"status": node.node_status(machine, now_s)}, STRATEGIC_PATCH)
        found = msgspec.json.decode(await self.client.request("GET", path))
        taints = found["spec"].get("taints") or []
        kept = node.without_not_ready(taints)
        if len(kept) != len(taints):
            version = found["metadata"]["resourceVersion"]
            await self._send("PATCH", path, {"metadata": {"resourceVersion": version}, "spec": {"taints": kept}})

    async def write_ready(self, name: str, now_s: float, *, ready: bool) -> None:
        """Write whether the node is Ready."""
        body = {"status": {"conditions": [node.ready_condition(now_s, ready=ready)]}}
        await self._send("PATCH", f"/api/v1/nodes/{name}/status", body, STRATEGIC_PATCH)

    async def renew(self, machine: Machine, now_s: float) -> None:
        """Renew the node's lease, or create it."""
        lease = node.lease(machine, now_s)
        try:
            await self._send("PATCH", f"{_LEASES}/{machine.name}", lease, MERGE_PATCH)
        except NotFound:
            await self._send("POST", _LEASES, lease)

    async def _send(self, method: str, path: str, body: Mapping[str, Any], content_type: str | None = None) -> None:
        kind = content_type or (MERGE_PATCH if method == "PATCH" else "application/json")
        await self.client.request(method, path, msgspec.json.encode(body), content_type=kind)
