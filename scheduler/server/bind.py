"""Write a decision: one POST of a Binding, repeated until the API server's answer is definite.

The same bytes are sent every time, with the pod's uid as a precondition, so repeating is safe. After a write whose
answer was lost, the repetition finds the pod already assigned, and the pod is read back. If a repetition is rejected,
an earlier copy may still arrive: the pod is then read back once that copy can no longer arrive.

The body is protobuf, as kube-scheduler's: an API server reads it with less work than JSON.
"""

import asyncio

from mooring.kube.client import Client
from mooring.kube.failures import KubeError, NotFound, Throttled, Unknown
from mooring.kube.write import Write
from scheduler.cycle.decisions import Bind
from scheduler.kube.binding_outcome import BOUND, LookAgain, Outcome, classify, compare
from scheduler.server.pb.binding_pb2 import Binding, ObjectMeta, ObjectReference, TypeMeta
from scheduler.server.pb.binding_pb2 import Unknown as Envelope
from scheduler.server.read_back import read_back

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
    """Return the body of a Binding of a pod to a node."""
    target = ObjectReference(api_version="v1", kind="Node", name=node)
    raw = Binding(metadata=metadata, target=target).SerializeToString(deterministic=True)
    return MAGIC + Envelope(type_meta=_TYPE, raw=raw).SerializeToString(deterministic=True)


async def bind(client: Client, decision: Bind) -> Outcome:
    """Bind a pod and return the outcome, however long the API server takes to answer."""
    pod = decision.pod_info.pod.metadata
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    write = Write(client, "POST", f"{path}/binding", binding(decision), MEDIA_TYPE)
    try:
        await write.send()
    except (Unknown, Throttled):
        raise
    except KubeError as failed:
        verdict = classify(failed)
        outcome = await _look(client, path, decision) if isinstance(verdict, LookAgain) else verdict
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
