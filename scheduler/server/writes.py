"""Carry out the machine's orders: start the writes in portions, and return their results as messages.

Each write is repeated until the API server's answer is definite. The same bytes are sent every time, with uids and
versions as preconditions, so repeating is safe. After a write whose answer was lost, a repetition may find the object
already written, and it is read back. If a repetition is rejected, an earlier copy may still arrive: the pod is then
read back once that copy can no longer arrive. Evictions and deletions are in `scheduler.server.evict`.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec
import structlog

from mooring import names
from mooring.kube.answers import decode_object
from mooring.kube.client import MERGE_PATCH, STRATEGIC_PATCH, Client
from mooring.kube.failures import Conflict, KubeError, NotFound, Unknown, of_object
from mooring.kube.retry import retry_unless_not_found, until_definite
from mooring.kube.write import Write
from scheduler.cache.volumes.plan import Match, Provision
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import (
    DeleteVictims,
    Evict,
    Order,
    PreBind,
    PreBindResult,
    Result,
    WriteRates,
    WriteRatesResult,
)
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import BOUND, Outcome, another_pod, classify, compare
from scheduler.kube.storage_objects import BOUND_BY_CONTROLLER, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from scheduler.server import metrics
from scheduler.server.evict import delete_victims, evict
from scheduler.server.pb.binding_pb2 import Binding, ObjectMeta, ObjectReference, TypeMeta
from scheduler.server.pb.binding_pb2 import Unknown as Envelope
from scheduler.server.report_writer import ReportWriter, timestamp
from scheduler.server.reports import pod_path, rates_patch
from scheduler.state.machine import Machine

_log = structlog.get_logger()
_T = TypeVar("_T")
# Number of writes that start in one iteration of the event loop: the 4,096 Bindings of a group take 50 ms of CPU until
# all have started.
PORTION = 256
# Seconds after which a write without a definite answer no longer counts as in progress: its namespace gets few at once
# (`scheduler/state/open_writes.py`).
_LONG_S = 1.0
# Seconds during which the API server may still carry out an abandoned request.
ON_ITS_WAY_S = 5.0
MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
# The prefix of every object: k8s.io/apimachinery, pkg/runtime/serializer/protobuf, protoEncodingPrefix.
MAGIC = b"k8s\x00"
_Volume = TypeVar("_Volume", PersistentVolume, PersistentVolumeClaim)
_TYPE = TypeMeta(api_version="v1", kind="Binding")


class WriteResult(msgspec.Struct, frozen=True):
    order: Order
    result: Result


class Writes:
    """The writes in progress and those that are about to start; results go to ``receive``.

    ``wake`` is called after each, also after a write that has no result for the machine.
    """

    def __init__(
        self,
        machine: Machine,
        client: Client,
        reports: ReportWriter,
        receive: Callable[[WriteResult], None],
        wake: Callable[[], None],
    ) -> None:
        self._machine, self._client, self._reports = machine, client, reports
        self._receive, self._wake = receive, wake
        self._profile_metrics = metrics.ProfileMetrics(machine.scheduler_name)
        self._queue: deque[Callable[[], Coroutine[Any, Any, None]]] = deque()
        # How many more may start in this iteration of the event loop.
        self._room = PORTION
        # Their start times, in this order.
        self._tasks: dict[asyncio.Task[Any], float] = {}

    def __len__(self) -> int:
        return len(self._tasks) + len(self._queue)

    def put(self, order: Order, now: float) -> None:
        """Start an order at once, or after a portion of others; ``now`` is the machine's time."""
        self._queue.append(self._call(order, now))
        self._start_portion()

    def start(self, write: Coroutine[None, None, _T]) -> "asyncio.Task[_T]":
        """Start a write that must end before the loop ends."""
        task = asyncio.create_task(write)
        self._tasks[task] = time.monotonic()
        task.add_done_callback(self._end)
        return task

    def reach(self, count: int) -> bool:
        """Return whether at least this many are in progress; those without an answer for long do not count."""
        if len(self) < count:
            return False
        start_s = next(islice(self._tasks.values(), len(self) - count, None), float("inf"))
        return start_s > time.monotonic() - _LONG_S

    async def drain(self, timeout_s: float) -> None:
        """Wait until all have ended, for a limited time."""
        while self._queue:
            await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    def cancel(self) -> None:
        self._queue.clear()
        for task in self._tasks:
            task.cancel()

    def _call(self, order: Order, now: float) -> Callable[[], Coroutine[Any, Any, None]]:
        if not isinstance(order, Bind):
            return partial(self._write, order)
        pending = self._machine.pending_pods[order.pod_info.uid]
        return partial(self._bind, order, time.monotonic() - (now - pending.since), pending.attempts)

    def _start_portion(self) -> None:
        while self._queue and self._room:
            if self._room == PORTION:
                asyncio.get_running_loop().call_soon(self._next_portion)
            self._room -= 1
            self.start(self._queue.popleft()())

    def _next_portion(self) -> None:
        self._room = PORTION
        self._start_portion()

    def _end(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)
        self._wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            # The state that it was to write stays assumed.
            _log.error("bug: a write failed", exc_info=error, reason=str(error))

    async def _bind(self, decision: Bind, queue_start_s: float, attempts: int) -> None:
        start_s = time.monotonic()
        outcome = await bind(self._client, decision)
        self._profile_metrics.bind(outcome, time.monotonic() - start_s)
        if outcome.kind == "bound":
            self._profile_metrics.success(time.monotonic() - queue_start_s, attempts)
        self._receive(WriteResult(decision, outcome))

    async def _write(self, order: PreBind | Evict | DeleteVictims | WriteRates) -> None:
        self._receive(WriteResult(order, await self._result(order)))

    async def _result(self, order: PreBind | Evict | DeleteVictims | WriteRates) -> Result:
        match order:
            case PreBind():
                return await pre_bind(self._client, order)
            case Evict():
                result = await evict(self._client, order)
                metrics.EVICTIONS.labels(order.cause, result).inc()
                return result
            case DeleteVictims():
                metrics.PREEMPTIONS.inc()
                metrics.VICTIMS.observe(len(order.victims))
                return await delete_victims(self._client, order, self._machine.scheduler_name)
            case WriteRates():
                self._reports.drop_rates(order)
                rates_result = await write_rates(self._client, order, timestamp())
                metrics.RATE_CHANGES.labels(rates_result.kind).inc()
                return rates_result


def binding(decision: Bind) -> bytes:
    """Return the body of the Binding; equal decisions give equal bytes."""
    pod = decision.pod_info.pod.metadata
    metadata = ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid, annotations=decision.annotations)
    return encode(metadata, decision.assigned.node)


def encode(metadata: ObjectMeta, node: str) -> bytes:
    """Encode as protobuf, as kube-scheduler does: an API server reads it with less work than JSON."""
    target = ObjectReference(api_version="v1", kind="Node", name=node)
    raw = Binding(metadata=metadata, target=target).SerializeToString(deterministic=True)
    return MAGIC + Envelope(type_meta=_TYPE, raw=raw).SerializeToString(deterministic=True)


async def bind(client: Client, decision: Bind) -> Outcome:
    """Bind a pod, log and return the outcome, however long the API server takes to answer."""
    outcome = await _send_binding(client, decision)
    fields = {"pod": decision.pod_info.pod.key, "uid": decision.pod_info.uid, "node": decision.assigned.node}
    if outcome.kind == "bound":
        _log.info("pod bound", **fields, assignment=decision.annotations.get(names.ASSIGNMENT, ""))
    else:
        _log.warning("pod not bound", **fields, outcome=outcome.kind, reason=outcome.reason)
    return outcome


async def _send_binding(client: Client, decision: Bind) -> Outcome:
    path = pod_path(decision.pod_info.pod.key)
    write = Write(client, "POST", f"{path}/binding", binding(decision), MEDIA_TYPE)
    try:
        await write.send()
    except KubeError as error:
        outcome = classify(error) or await _compare_binding(client, path, decision)
        if not write.is_uncertain or outcome.kind in ("bound", "gone"):
            return outcome
        await asyncio.sleep(ON_ITS_WAY_S)
        last_outcome = await _compare_binding(client, path, decision)
        return last_outcome if last_outcome.kind in ("bound", "gone", "taken") else outcome
    return BOUND


async def _compare_binding(client: Client, path: str, decision: Bind) -> Outcome:
    try:
        pod = await _read_pod(client, path)
    except NotFound as absence:
        return Outcome("gone", absence.status.message)
    return compare(pod, decision.pod_info.uid, decision.assigned.node, decision.annotations)


async def write_rates(client: Client, order: WriteRates, now: str) -> WriteRatesResult:
    """Allocate changed rates to a running pod, log and return the result; ``now`` is RFC 3339.

    The condition is written with the annotation, through pods/status, which accepts both.
    """
    result = await _send_rates(client, order, now)
    fields = {"pod": order.pod.key, "uid": order.rates.uid, "node": order.rates.node}
    if result.kind == "written":
        _log.info("rates allocated", **fields, rates=order.annotations[names.RATES])
    else:
        _log.info("rates not allocated", **fields, outcome=result.kind, reason=result.reason)
    return result


async def _send_rates(client: Client, order: WriteRates, now: str) -> WriteRatesResult:
    path = pod_path(order.pod.key)
    write = Write(client, "PATCH", f"{path}/status", rates_patch(order, now), STRATEGIC_PATCH)
    try:
        await write.send()
    except NotFound as absence:
        return WriteRatesResult("gone", absence.status.message)
    except KubeError as error:
        rejection = WriteRatesResult("changed" if isinstance(error, Conflict) else "refused", error.status.message)
        if not write.is_uncertain:
            return rejection
        # Versions never repeat, so no copy of the write can still arrive after a conflict.
        if not isinstance(error, Conflict):
            await asyncio.sleep(ON_ITS_WAY_S)
        return await _compare_rates(client, path, order) or rejection
    return WriteRatesResult("written")


async def _compare_rates(client: Client, path: str, order: WriteRates) -> WriteRatesResult | None:
    """Return the result that the pod shows; None if it does not have these rates."""
    try:
        pod = await _read_pod(client, path)
    except NotFound as absence:
        return WriteRatesResult("gone", absence.status.message)
    if pod.metadata.uid != order.rates.uid:
        return WriteRatesResult("gone", another_pod(pod))
    is_ours = all(pod.annotations.get(key) == value for key, value in order.annotations.items())
    return WriteRatesResult("written") if is_ours else None


@retry_unless_not_found
async def _read_pod(client: Client, path: str) -> Pod:
    """Return the pod at ``path``; raise NotFound if there is none."""
    try:
        return decode_object(Pod, await client.request("GET", path))
    except NotFound as error:
        raise of_object(error) from None


async def pre_bind(client: Client, order: PreBind) -> PreBindResult:
    """Write a plan and return the result; if a later write fails, nothing is undone.

    As in kube-scheduler's PreBind, a volume gets its claim, and a claim the node for which its volume is to be created.
    The volume controller and the provisioner do the rest.
    """
    versions: dict[str, str] = {}
    try:
        for match in order.plan.matches:
            reference = match.volume.spec.claim_ref
            if reference is None or not reference.uid:
                versions[match.volume.metadata.name] = await _write_claim(client, match)
        for provision in order.plan.provisions:
            if provision.claim.selected_node != provision.node:
                versions[provision.claim.key] = await _write_node(client, provision)
    except Unknown as unreadable:
        return PreBindResult(fault=f"the API server's answer cannot be read: {unreadable}")
    except KubeError as error:
        return PreBindResult(fault=error.status.message)
    return PreBindResult(versions)


async def _write_claim(client: Client, match: Match) -> str:
    """Write a volume's claim; return its version."""
    volume, claim = match.volume.metadata, match.claim.metadata
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "resourceVersion": claim.resource_version,
    }
    metadata: dict[str, object] = {"uid": volume.uid, "resourceVersion": volume.resource_version}
    if match.volume.spec.claim_ref is None:
        # A volume whose claimRef was set by its owner keeps it when the claim is deleted.
        metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}

    def is_done(volume: PersistentVolume) -> bool:
        return volume.spec.claim_ref is not None and volume.spec.claim_ref.uid == claim.uid

    patch = {"metadata": metadata, "spec": {"claimRef": reference}}
    return await _patch(client, PersistentVolume, f"/api/v1/persistentvolumes/{volume.name}", patch, is_done)


async def _write_node(client: Client, provision: Provision) -> str:
    """Write the node for which a claim's volume is to be created; return the claim's version."""
    about, node = provision.claim.metadata, provision.node
    metadata = {"uid": about.uid, "resourceVersion": about.resource_version, "annotations": {SELECTED_NODE: node}}
    path = f"/api/v1/namespaces/{about.namespace}/persistentvolumeclaims/{about.name}"
    patch = {"metadata": metadata}
    return await _patch(client, PersistentVolumeClaim, path, patch, lambda claim: claim.selected_node == node)


async def _patch(
    client: Client, kind: type[_Volume], path: str, patch: Mapping[str, object], is_done: Callable[[_Volume], bool]
) -> str:
    """Return the version of the object with the written fields; raise Unknown if none can be read."""
    try:
        write = Write(client, "PATCH", path, msgspec.json.encode(patch), MERGE_PATCH)
        volume = decode_object(kind, await write.send())
    except (Conflict, Unknown):
        # The conflict may be with our own write, whose answer was lost. An unreadable answer proves no more.
        volume = decode_object(kind, await _get(client, path))
        if not is_done(volume):
            raise
    return volume.metadata.resource_version


@until_definite
async def _get(client: Client, path: str) -> bytes:
    return await client.request("GET", path)
