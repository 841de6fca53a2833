"""Write a decision: one POST of a Binding, repeated until the API server's answer is definite.

The same bytes are sent every time, with the pod's uid as a precondition, so repeating is safe. After a write whose
answer was lost, the repetition finds the pod already assigned, and the pod is read back. If a repetition is rejected,
an earlier copy may still arrive: the pod is then read back once that copy can no longer arrive.

The body is protobuf, as kube-scheduler's: an API server reads it with less work than JSON.
"""

import asyncio

import msgspec
import structlog

from mooring import names
from mooring.kube.answers import check_object
from mooring.kube.client import Client
from mooring.kube.failures import KubeError, NotFound, Status, Throttled, Unknown, of_object
from mooring.kube.retry import retry_unless_not_found
from mooring.kube.write import Write
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import BOUND, Outcome, classify, compare
from scheduler.server.pb.binding_pb2 import Binding, ObjectMeta, ObjectReference, TypeMeta
from scheduler.server.pb.binding_pb2 import Unknown as Envelope

_log = structlog.get_logger()
# Seconds during which the API server may still carry out an abandoned request.
ON_ITS_WAY_S = 5.0
MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
# The prefix of every object: k8s.io/apimachinery, pkg/runtime/serializer/protobuf, protoEncodingPrefix.
MAGIC = b"k8s\x00"
_TYPE = TypeMeta(api_version="v1", kind="Binding")


def binding(decision: Bind) -> bytes:
    """Return the body of the Binding; equal decisions give equal bytes."""
    pod = decision.pod_info.pod.metadata
    metadata = ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid, annotations=decision.annotations)
    return encode(metadata, decision.assigned.node)


def encode(metadata: ObjectMeta, node: str) -> bytes:
    target = ObjectReference(api_version="v1", kind="Node", name=node)
    raw = Binding(metadata=metadata, target=target).SerializeToString(deterministic=True)
    return MAGIC + Envelope(type_meta=_TYPE, raw=raw).SerializeToString(deterministic=True)


async def bind(client: Client, decision: Bind) -> Outcome:
    """Bind a pod, log and return the outcome, however long the API server takes to answer."""
    outcome = await _write(client, decision)
    fields = {"pod": decision.pod_info.pod.key, "uid": decision.pod_info.uid, "node": decision.assigned.node}
    if outcome.kind == "bound":
        _log.info("pod bound", **fields, assignment=decision.annotations.get(names.ASSIGNMENT, ""))
    else:
        _log.warning("pod not bound", **fields, outcome=outcome.kind, reason=outcome.reason)
    return outcome


async def _write(client: Client, decision: Bind) -> Outcome:
    pod = decision.pod_info.pod.metadata
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    write = Write(client, "POST", f"{path}/binding", binding(decision), MEDIA_TYPE)
    try:
        await write.send()
    except (Unknown, Throttled):
        raise
    except KubeError as failed:
        outcome = classify(failed) or await _look(client, path, decision)
        if not write.lost or outcome.kind in ("bound", "gone"):
            return outcome
        await asyncio.sleep(ON_ITS_WAY_S)
        last = await _look(client, path, decision)
        return last if last.kind in ("bound", "gone", "taken") else outcome
    return BOUND


async def _look(client: Client, path: str, decision: Bind) -> Outcome:
    try:
        pod = await read_back(client, path)
    except NotFound as gone:
        return Outcome("gone", gone.status.message)
    return compare(pod, decision.pod_info.uid, decision.assigned.node, decision.annotations)


_decode_pod = msgspec.json.Decoder(Pod).decode


@retry_unless_not_found
async def read_back(client: Client, path: str) -> Pod:
    """Return the pod at ``path``; raise NotFound if there is none."""
    try:
        body = await client.request("GET", path)
    except NotFound as failed:
        if (said := of_object(failed)) is failed:
            raise
        raise said from failed
    try:
        return _decode_pod(check_object("Pod", body))
    except msgspec.MsgspecError as unreadable:
        raise Unknown(Status(200, message=f"GET {path}: {unreadable}")) from unreadable
