"""Call the runtime over CRI, or the shim in front of it: one call a method, with the real kubelet's deadlines."""

from types import TracebackType
from typing import Any, Self

import grpc
from cri_api.v1 import api_pb2 as cri
from cri_api.v1 import api_pb2_grpc as cri_grpc

from devcluster.kubelet.plan.requests import CONTAINER_NAME, POD_NAME, POD_NAMESPACE, POD_UID
from devcluster.kubelet.plan.view import Container, Sandbox, State, View

_STATES = {
    cri.CONTAINER_CREATED: State.CREATED,
    cri.CONTAINER_RUNNING: State.RUNNING,
    cri.CONTAINER_EXITED: State.EXITED,
}
_NS = 1e9
# For a large image from a busy machine's own disk.
_PULL_S = 300.0
# A restarted shim is found again within this time, in ms; gRPC's own most is two minutes.
_RECONNECT_MS = 500


class Runtime:
    """A connection to one CRI endpoint; use as an async context manager. Every method may raise grpc.RpcError.

    ``timeout_s`` is the kubelet's --runtime-request-timeout; making a sandbox has twice that.
    """

    def __init__(self, endpoint: str, timeout_s: float = 120.0) -> None:
        self._timeout_s = timeout_s
        options = [(f"grpc.{name}_reconnect_backoff_ms", _RECONNECT_MS) for name in ("initial", "min", "max")]
        self._channel = grpc.aio.insecure_channel(endpoint, options=options)
        self._runtime = cri_grpc.RuntimeServiceStub(self._channel)
        self._images = cri_grpc.ImageServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def pods(self) -> dict[str, tuple[str, frozenset[tuple[str, int]]]]:
        """Return every pod by uid: its name, and the ids and states of all that is listed of it."""
        sandboxes = (await self._call(self._runtime.ListPodSandbox, cri.ListPodSandboxRequest())).items
        containers = (await self._call(self._runtime.ListContainers, cri.ListContainersRequest())).containers
        names: dict[str, str] = {}
        parts: dict[str, set[tuple[str, int]]] = {}
        for part in (*sandboxes, *containers):
            uid = part.labels.get(POD_UID, "")
            names[uid] = f"{part.labels.get(POD_NAMESPACE, '')}/{part.labels.get(POD_NAME, '')}"
            parts.setdefault(uid, set()).add((part.id, part.state))
        return {uid: (names[uid], frozenset(seen)) for uid, seen in parts.items() if uid}

    async def poll(self) -> None:
        """Ask for the runtime's state, as a kubelet does all the time."""
        await self._call(self._runtime.Status, cri.StatusRequest())

    async def view(self, uid: str) -> View:
        """Return the runtime's view of one pod."""
        wanted = {POD_UID: uid}
        sandboxes = cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(label_selector=wanted))
        containers = cri.ListContainersRequest(filter=cri.ContainerFilter(label_selector=wanted))
        listed = (await self._call(self._runtime.ListPodSandbox, sandboxes)).items
        parts = (await self._call(self._runtime.ListContainers, containers)).containers
        return View(
            tuple([await self._sandbox(sandbox.id) for sandbox in listed]),
            tuple([await self._container(part.id, part.pod_sandbox_id) for part in parts]),
        )

    async def run_sandbox(self, config: Any) -> str:
        """Make a sandbox and return its id."""
        request = cri.RunPodSandboxRequest(config=config)
        return str((await self._runtime.RunPodSandbox(request, timeout=2 * self._timeout_s)).pod_sandbox_id)

    async def stop_sandbox(self, sandbox: str) -> None:
        await self._call(self._runtime.StopPodSandbox, cri.StopPodSandboxRequest(pod_sandbox_id=sandbox))

    async def remove_sandbox(self, sandbox: str) -> None:
        await self._call(self._runtime.RemovePodSandbox, cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox))

    async def has_image(self, image: str) -> bool:
        request = cri.ImageStatusRequest(image=cri.ImageSpec(image=image))
        return bool((await self._call(self._images.ImageStatus, request)).HasField("image"))

    async def pull(self, image: str) -> None:
        await self._images.PullImage(cri.PullImageRequest(image=cri.ImageSpec(image=image)), timeout=_PULL_S)

    async def create_container(self, sandbox: str, config: Any, sandbox_config: Any) -> str:
        """Create a container and return its id."""
        request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=config, sandbox_config=sandbox_config)
        return str((await self._call(self._runtime.CreateContainer, request)).container_id)

    async def start_container(self, container: str) -> None:
        await self._call(self._runtime.StartContainer, cri.StartContainerRequest(container_id=container))

    async def stop_container(self, container: str, grace_s: int) -> None:
        """Stop a container; the deadline is the grace period longer."""
        request = cri.StopContainerRequest(container_id=container, timeout=grace_s)
        await self._runtime.StopContainer(request, timeout=self._timeout_s + grace_s)

    async def remove_container(self, container: str) -> None:
        await self._call(self._runtime.RemoveContainer, cri.RemoveContainerRequest(container_id=container))

    async def _sandbox(self, key: str) -> Sandbox:
        answer = await self._call(self._runtime.PodSandboxStatus, cri.PodSandboxStatusRequest(pod_sandbox_id=key))
        status = answer.status
        ips = (status.network.ip, *(address.ip for address in status.network.additional_ips))
        ready = status.state == cri.SANDBOX_READY
        return Sandbox(key, status.metadata.attempt, ready, tuple(ip for ip in ips if ip))

    async def _container(self, key: str, sandbox: str) -> Container:
        answer = await self._call(self._runtime.ContainerStatus, cri.ContainerStatusRequest(container_id=key))
        status = answer.status
        return Container(
            id=key,
            name=status.labels[CONTAINER_NAME],
            sandbox_id=sandbox,
            attempt=status.metadata.attempt,
            state=_STATES.get(status.state, State.UNKNOWN),
            image=status.image_ref,
            exit_code=status.exit_code,
            started_s=status.started_at / _NS,
            finished_s=status.finished_at / _NS,
            reason=status.reason,
        )

    async def _call(self, method: Any, request: Any) -> Any:
        return await method(request, timeout=self._timeout_s)
