"""Take one step of a plan: the calls to the runtime and the API server, and the events of their failures."""

import asyncio
import contextlib
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from devcluster.kubelet.api import Api, Event
from devcluster.kubelet.logs import log_folder
from devcluster.kubelet.plan import requests
from devcluster.kubelet.plan.next_steps import (
    DeletePod,
    Launch,
    MakeSandbox,
    RemoveSandbox,
    Step,
    StopContainer,
    StopSandbox,
)
from devcluster.kubelet.plan.pods import ContainerSpec, Pod
from devcluster.kubelet.plan.status import Failure
from devcluster.kubelet.plan.view import Mount, View
from devcluster.kubelet.runtime import Runtime
from devcluster.kubelet.volumes import VolumeError, Volumes, mounts

Tell = Callable[[Event], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Edge:
    """Everything outside: API server, runtime, clock (seconds since the epoch), volumes.

    ``slots``: how many may start at a time. ``pulls``: missing images are pulled. ``services``: variables with the API
    server's address for every container. ``logs``: folder of the containers' logs, None keeps none.
    """

    api: Api
    runtime: Runtime
    clock: Callable[[], float]
    host_ip: str
    slots: asyncio.Semaphore
    volumes: Volumes
    pulls: bool = False
    services: Mapping[str, str] = field(default_factory=dict)
    logs: Path | None = None

    def log_folder(self, pod: Pod) -> str:
        """Return the folder of a pod's logs, empty if none are kept."""
        about = pod.metadata
        return "" if self.logs is None else str(log_folder(self.logs, about.namespace, about.name, about.uid))

    def forget_logs(self, uid: str) -> None:
        for folder in self.logs.glob(f"*_{uid}") if self.logs is not None else ():
            shutil.rmtree(folder, ignore_errors=True)


class StepFailed(Exception):  # noqa: N818 - names the outcome of the step
    """A step that the runtime refused: the event to write, and why a container waits if it is about one."""

    def __init__(self, event: Event, container: str = "", failure: Failure | None = None) -> None:
        super().__init__(event.message)
        self.event = event
        self.container = container
        self.failure = failure


async def start(step: MakeSandbox | Launch, pod: Pod, view: View, edge: Edge, tell: Tell) -> None:
    """Make a sandbox or launch a container, when it is this pod's turn; raise StepFailed."""
    async with edge.slots:
        if isinstance(step, MakeSandbox):
            await _make_sandbox(step, pod, edge)
        else:
            await _launch(step, pod, view, edge, tell)


async def end(step: Step, pod: Pod | None, edge: Edge, tell: Tell) -> None:
    """Stop or remove a part of the pod, or the pod itself; raise StepFailed, or KubeError for the last."""
    with _told_as_failed_kill():
        match step:
            case StopContainer():
                await tell(Event("Normal", "Killing", f"Stopping container {step.name}"))
                await edge.runtime.stop_container(step.container_id, step.grace_s)
            case StopSandbox():
                await edge.runtime.stop_sandbox(step.sandbox_id)
            case RemoveSandbox():
                await edge.runtime.stop_sandbox(step.sandbox_id)
                await edge.runtime.remove_sandbox(step.sandbox_id)
            case DeletePod() if pod is not None:
                await edge.api.delete(pod)


async def _make_sandbox(step: MakeSandbox, pod: Pod, edge: Edge) -> None:
    with _told_as_failed_kill():
        for old in step.replaces:
            await edge.runtime.stop_sandbox(old)
    try:
        await edge.runtime.run_sandbox(requests.sandbox_config(pod, step.attempt, edge.log_folder(pod)))
    except grpc.RpcError as refused:
        message = f"Failed to create pod sandbox: {in_full(refused)}"
        raise StepFailed(Event("Warning", "FailedCreatePodSandBox", message)) from refused


async def _launch(step: Launch, pod: Pod, view: View, edge: Edge, tell: Tell) -> None:
    spec, runtime = pod.container(step.container), edge.runtime
    sandbox = next(sandbox for sandbox in view.sandboxes if sandbox.id == step.sandbox_id)
    ip = sandbox.ips[0] if sandbox.ips else edge.host_ip
    known = {"status.podIP": ip, "status.hostIP": edge.host_ip, "spec.nodeName": edge.api.node}
    config = requests.container_config(pod, spec, step.attempt, known, await _mounted(pod, spec, edge), edge.services)
    sandbox_config = requests.sandbox_config(pod, sandbox.attempt, edge.log_folder(pod))
    await _have_image(spec, edge, tell)
    with _told_as_failed(spec.name, "CreateContainerError"):
        container = await runtime.create_container(sandbox.id, config, sandbox_config)
    await tell(Event("Normal", "Created", f"Created container: {spec.name}"))
    with _told_as_failed(spec.name, "RunContainerError"):
        try:
            await runtime.start_container(container)
        except grpc.RpcError:
            with contextlib.suppress(grpc.RpcError):
                await runtime.remove_container(container)
            raise
    await tell(Event("Normal", "Started", f"Started container {spec.name}"))


async def _mounted(pod: Pod, spec: ContainerSpec, edge: Edge) -> Sequence[Mount]:
    try:
        return tuple(mounts(spec, await edge.volumes.make(pod)))
    except (VolumeError, OSError) as missing:
        failure = Failure("ContainerCreating")
        raise StepFailed(Event("Warning", "FailedMount", str(missing)), spec.name, failure) from missing


async def _have_image(spec: ContainerSpec, edge: Edge, tell: Tell) -> None:
    """Pull a container's image if its policy requires it; raise StepFailed."""
    present = await edge.runtime.has_image(spec.image)
    if present and (spec.image_pull_policy != "Always" or not edge.pulls):
        return
    if not edge.pulls or spec.image_pull_policy == "Never":
        message = f"Container image {spec.image!r} is not present and nothing is pulled here"
        failure = Failure("ErrImageNeverPull", message)
        raise StepFailed(Event("Warning", "ErrImageNeverPull", message), spec.name, failure)
    await tell(Event("Normal", "Pulling", f'Pulling image "{spec.image}"'))
    with _told_as_failed(spec.name, "ErrImagePull"):
        await edge.runtime.pull(spec.image)
    await tell(Event("Normal", "Pulled", f'Successfully pulled image "{spec.image}"'))


@contextlib.contextmanager
def _told_as_failed(container: str, reason: str) -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as refused:
        message = str(refused.details())
        raise StepFailed(
            Event("Warning", "Failed", f"Error: {message}"), container, Failure(reason, message)
        ) from refused


@contextlib.contextmanager
def _told_as_failed_kill() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as refused:
        raise StepFailed(Event("Warning", "FailedKillPod", f"error killing pod: {in_full(refused)}")) from refused


def in_full(refused: grpc.RpcError) -> str:
    """Return a gRPC error in the format of Go's clients, as in the real kubelet's events."""
    code = "".join(word.capitalize() for word in refused.code().name.split("_"))
    return f"rpc error: code = {code} desc = {refused.details()}"
