"""Run the two pods, wait for what they measure, and delete them whatever happens."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from cli.plugin.connectivity.plan import (
    CONTAINER,
    Plan,
    PodOptions,
    Said,
    client_pod,
    longest_s,
    read_log,
    report,
    server_pod,
)
from cli.plugin.reports.tables import Answer
from mooring.kube.answers import check_object, incomplete_answer
from mooring.kube.client import Client
from mooring.kube.failures import KubeError, NotFound
from scheduler.kube.objects import Metadata, PodPhase, Struct

# How often pods and logs are read, in seconds.
_PAUSE_S = 0.5
_ENDED = ("Succeeded", "Failed")
Tell = Callable[[str], None]


class ConnectivityError(RuntimeError):
    """The test could not be run to its end."""


class _Waiting(Struct):
    reason: str = ""
    message: str = ""


class _State(Struct):
    waiting: _Waiting | None = None


class _ContainerStatus(Struct):
    state: _State = msgspec.field(default_factory=_State)


class _Status(PodPhase):
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    container_statuses: list[_ContainerStatus] | None = None


class _Pod(Struct):
    metadata: Metadata
    status: _Status = msgspec.field(default_factory=_Status)


class ConnectivityTest:
    """One test in one namespace; ``start_s`` is how long a pod may take to start. It reports what it waits for."""

    def __init__(self, client: Client, namespace: str, options: PodOptions, start_s: float, tell: Tell) -> None:
        self._client = client
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._options = options
        self._start_s = start_s
        self._tell = tell

    async def run(self, plan: Plan, *, keep: bool = False) -> Answer:
        """Return the report; raise ConnectivityError or KubeError. The pods are deleted, unless they are kept."""
        async with self._created(server_pod(plan, self._options), keep=keep) as server:
            address = await self._ready(server)
            async with self._created(client_pod(plan, self._options, address), keep=keep) as client:
                limit_s = self._start_s + longest_s(plan, self._options)
                said = await self._until_done(client, limit_s, len(plan.pairs))
        return report(plan, said)

    @asynccontextmanager
    async def _created(self, document: Mapping[str, Any], *, keep: bool) -> AsyncIterator[_Pod]:
        made = _read(await self._client.request("POST", self._pods, msgspec.json.encode(document)))
        try:
            yield made
        finally:
            if not keep:
                await self._delete(made)

    async def _delete(self, pod: _Pod) -> None:
        body = msgspec.json.encode({"preconditions": {"uid": pod.metadata.uid}})
        try:
            await self._client.request("DELETE", self._path(pod), body)
        except NotFound:
            return
        except KubeError as error:
            self._tell(f"pod {pod.metadata.name!r} is not deleted: {error}")

    async def _ready(self, pod: _Pod) -> str:
        """Return the server's address once all its devices are served."""
        self._tell(f"waiting for pod {pod.metadata.name!r} to start")
        latest = pod
        try:
            async with asyncio.timeout(self._start_s):
                while True:
                    latest, said = await self._look(pod)
                    self._refuse_end(latest, said)
                    if said.is_ready and latest.status.pod_ip:
                        return latest.status.pod_ip
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise self._late(latest, self._start_s) from None

    async def _until_done(self, pod: _Pod, limit_s: float, count: int) -> Said:
        """Return the last log of the measuring pod."""
        latest, shown = pod, -1
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    latest, said = await self._look(pod)
                    known = len(said.rates_gbps) + len(said.failures)
                    if known != shown:
                        self._tell(f"measured {known} of {count} pairs of rails")
                        shown = known
                    if said.is_done:
                        return said
                    self._refuse_end(latest, said)
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise self._late(latest, limit_s) from None

    async def _look(self, pod: _Pod) -> tuple[_Pod, Said]:
        """Return the pod, and then its log, which is complete if the pod has ended."""
        latest = _read(await self._client.request("GET", self._path(pod)))
        if latest.metadata.uid != pod.metadata.uid:
            raise ConnectivityError(f"pod {pod.metadata.name!r} was deleted during the test")
        return latest, read_log(await self._log(latest) if latest.status.phase in ("Running", *_ENDED) else "")

    async def _log(self, pod: _Pod) -> str:
        body = await self._client.request("GET", f"{self._path(pod)}/log", params={"container": CONTAINER})
        return body.decode(errors="replace")

    def _refuse_end(self, pod: _Pod, said: Said) -> None:
        if said.fault:
            raise ConnectivityError(f"pod {pod.metadata.name!r}: {said.fault}")
        if pod.status.phase in _ENDED:
            raise ConnectivityError(f"pod {pod.metadata.name!r} has ended: {pod.status.message or pod.status.phase}")

    def _late(self, pod: _Pod, limit_s: float) -> ConnectivityError:
        return ConnectivityError(f"pod {pod.metadata.name!r} is not ready after {limit_s:g} s: {_why(pod.status)}")

    def _path(self, pod: _Pod) -> str:
        return f"{self._pods}/{pod.metadata.name}"


def _read(answer: bytes) -> _Pod:
    try:
        return msgspec.json.decode(check_object("Pod", answer), type=_Pod)
    except msgspec.MsgspecError as unreadable:
        raise incomplete_answer(f"not a Pod: {unreadable}") from unreadable


def _why(status: _Status) -> str:
    """Return why a pod does not start, as the scheduler or the kubelet reports it."""
    for container_status in status.container_statuses or ():
        if container_status.state.waiting is not None:
            return f"{container_status.state.waiting.reason}: {container_status.state.waiting.message}".strip(": ")
    refused = [
        condition.message for condition in status.conditions or () if condition.status == "False" and condition.message
    ]
    return refused[0] if refused else f"its phase is {status.phase or 'Pending'}"
