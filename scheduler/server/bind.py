"""Write a decision: one POST of a Binding, repeated until the API server's answer is definite.

The same bytes are sent every time, with the pod's uid as a precondition, so that repeating is safe. After a write whose
answer was lost, the repetition finds the pod already assigned, and the pod is read back. A refused repetition proves
nothing about an earlier copy that may still arrive: then the pod is read back once that copy can no longer arrive.
"""

import asyncio

import msgspec

from mooring.kube.client import Client
from mooring.kube.failures import KubeError, NotFound, Throttled, Unknown
from mooring.kube.retry import until_definite
from scheduler.cycle.decisions import Bind
from scheduler.kube.binding_outcome import BOUND, LookAgain, Outcome, classify, compare
from scheduler.server.read_back import read_back

# Seconds during which the API server may still carry out an abandoned request.
ON_ITS_WAY_S = 5.0


def binding(decision: Bind) -> bytes:
    """Return the body of the Binding."""
    pod = decision.pod_info.pod.metadata
    metadata = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid, "annotations": decision.annotations}
    target = {"apiVersion": "v1", "kind": "Node", "name": decision.assigned.node}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})


async def bind(client: Client, decision: Bind) -> Outcome:
    """Bind a pod and return the outcome, however long the API server takes to answer."""
    pod = decision.pod_info.pod.metadata
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    sending = _BindingRequest(client, f"{path}/binding", binding(decision))
    try:
        await sending.send()
    except (Unknown, Throttled):
        raise
    except KubeError as failed:
        found = classify(failed)
        outcome = await _look(client, path, decision) if isinstance(found, LookAgain) else found
        if not sending.lost or outcome.kind in ("bound", "gone"):
            return outcome
        await asyncio.sleep(ON_ITS_WAY_S)
        last = await _look(client, path, decision)
        return last if last.kind in ("bound", "gone", "taken") else outcome
    return BOUND


class _BindingRequest:
    """One Binding, sent until the answer is definite; ``lost`` is true if any answer was not."""

    def __init__(self, client: Client, path: str, body: bytes) -> None:
        self._client = client
        self._path = path
        self._body = body
        self.lost = False

    @until_definite
    async def send(self) -> None:
        try:
            await self._client.request("POST", self._path, self._body)
        except Unknown:
            self.lost = True
            raise


async def _look(client: Client, path: str, decision: Bind) -> Outcome:
    try:
        pod = await read_back(client, path)
    except NotFound as gone:
        return Outcome("gone", gone.status.message)
    return compare(pod, decision.pod_info.uid, decision.assigned.node, decision.annotations)
