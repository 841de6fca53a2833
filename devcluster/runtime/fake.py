"""A fake CRI runtime for machines without containerd: it makes network namespaces and calls the CNI chain.

What matters to CNI plugins and to a proxy between kubelet and runtime is done as containerd 1.6 does it. A sandbox is
listed only after ADD. DEL is called by StopPodSandbox, and again by RemovePodSandbox with no netns and no prevResult. A
failing DEL makes both fail until it succeeds. A client that disconnects during ADD kills the plugin, and DEL follows.
Records live in memory: its pods end with it.
"""

import asyncio
import json
import os
import secrets
import time
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import structlog
from cri_api.v1 import api_pb2 as cri

from devcluster.runtime import child, images, netns
from devcluster.runtime.cdi import CdiError, device_nodes
from devcluster.runtime.chain import Chain
from devcluster.runtime.child import Start, StartError
from devcluster.runtime.cnicalls import NetworkError
from devcluster.runtime.netns import NetnsError
from devcluster.runtime.sandboxes import Container, Sandbox, has_labels, same_pod

_log = structlog.get_logger()


class Refusal(Exception):  # noqa: N818 - an answer, by its gRPC code
    """An answer other than OK: the gRPC code and the message."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


@dataclass(slots=True)
class FakeRuntime:
    """The runtime's state and CRI's methods; each takes the request and returns the response.

    ``folder`` holds network namespaces, logs and the containers' root file system; ``known_images`` are full names.
    """

    folder: Path
    chain: Chain
    root: Path
    known_images: Collection[str]
    sandboxes: dict[str, Sandbox] = field(default_factory=dict)
    containers: dict[str, Container] = field(default_factory=dict)
    _starting: dict[str, Sandbox] = field(default_factory=dict)
    _ends: set["asyncio.Task[None]"] = field(default_factory=set)

    async def version(self, _request: Any) -> Any:
        return cri.VersionResponse(
            version="0.1.0", runtime_name="mooring-fake", runtime_version="0.1.0", runtime_api_version="v1"
        )

    async def status(self, request: Any) -> Any:
        conditions = [cri.RuntimeCondition(type=name, status=True) for name in ("RuntimeReady", "NetworkReady")]
        # As containerd tells it.
        config = json.dumps({"enableCDI": True, "cdiSpecDirs": [str(self._cdi)]})
        info = {"config": config} if request.verbose else None
        return cri.StatusResponse(status=cri.RuntimeStatus(conditions=conditions), info=info)

    async def run_pod_sandbox(self, request: Any) -> Any:
        config = request.config
        if other := same_pod((*self.sandboxes.values(), *self._starting.values()), config.metadata):
            raise Refusal(grpc.StatusCode.UNKNOWN, f"failed to reserve sandbox name: is reserved for {other.id!r}")
        sandbox = Sandbox(secrets.token_hex(32), config, time.time_ns(), None)
        self._starting[sandbox.id] = sandbox
        try:
            await self._set_up(sandbox)
        except BaseException:
            await self._give_up(sandbox)
            raise
        finally:
            del self._starting[sandbox.id]
        self.sandboxes[sandbox.id] = sandbox
        return cri.RunPodSandboxResponse(pod_sandbox_id=sandbox.id)

    async def stop_pod_sandbox(self, request: Any) -> Any:
        sandbox = self.sandboxes.get(request.pod_sandbox_id)
        if sandbox is not None:
            await self._stop(sandbox)
        return cri.StopPodSandboxResponse()

    async def remove_pod_sandbox(self, request: Any) -> Any:
        sandbox = self.sandboxes.get(request.pod_sandbox_id)
        if sandbox is not None:
            await self._stop(sandbox)
            for container in self._of(sandbox):
                self.containers.pop(container.id, None)
            self.sandboxes.pop(sandbox.id, None)
        return cri.RemovePodSandboxResponse()

    async def pod_sandbox_status(self, request: Any) -> Any:
        sandbox = self._sandbox(request.pod_sandbox_id)
        info = {"info": sandbox.info()} if request.verbose else None
        return cri.PodSandboxStatusResponse(status=sandbox.status(), info=info)

    async def list_pod_sandbox(self, request: Any) -> Any:
        wanted = request.filter
        found = [
            sandbox.listed()
            for sandbox in self.sandboxes.values()
            if wanted.id in ("", sandbox.id)
            and (not wanted.HasField("state") or wanted.state.state == sandbox.state)
            and has_labels(sandbox.config.labels, wanted.label_selector)
        ]
        return cri.ListPodSandboxResponse(items=found)

    async def create_container(self, request: Any) -> Any:
        sandbox, config = self._sandbox(request.pod_sandbox_id), request.config
        image = images.full_name(config.image.image)
        if image not in self.known_images:
            raise Refusal(grpc.StatusCode.NOT_FOUND, f"failed to get image {image!r}: not found")
        container = Container(secrets.token_hex(32), sandbox, config, time.time_ns())
        for device in config.devices:
            if not os.path.lexists(device.host_path):
                why = f'failed to generate container "{container.id}" spec: lstat {device.host_path}'
                raise Refusal(grpc.StatusCode.UNKNOWN, f"{why}: no such file or directory")
        self._cdi_nodes(config)
        self.containers[container.id] = container
        return cri.CreateContainerResponse(container_id=container.id)

    async def start_container(self, request: Any) -> Any:
        container = self._container(request.container_id)
        if container.started_ns:
            raise Refusal(grpc.StatusCode.UNKNOWN, f"container {container.id!r} is not in created state")
        config = container.config
        start = Start(
            root=self.root,
            netns=container.sandbox.netns,
            log=self.folder / f"{container.id}.log",
            devices=[
                *((device.container_path, device.host_path) for device in config.devices),
                *self._cdi_nodes(config),
            ],
            environment={variable.key: variable.value for variable in config.envs},
            command=(*config.command, *config.args) or ("sh",),
        )
        container.child = await child.launch(start)
        container.started_ns = time.time_ns()
        end = asyncio.create_task(_note_end(container, container.child.wait()))
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)
        return cri.StartContainerResponse()

    async def stop_container(self, request: Any) -> Any:
        container = self.containers.get(request.container_id)
        if container is not None and container.child is not None:
            await container.child.stop(request.timeout)
        return cri.StopContainerResponse()

    async def remove_container(self, request: Any) -> Any:
        container = self.containers.pop(request.container_id, None)
        if container is not None and container.child is not None:
            await container.child.stop(0)
        return cri.RemoveContainerResponse()

    async def container_status(self, request: Any) -> Any:
        container = self._container(request.container_id)
        info = {"info": container.info()} if request.verbose else None
        return cri.ContainerStatusResponse(status=container.status(), info=info)

    async def list_containers(self, request: Any) -> Any:
        wanted = request.filter
        found = [
            container.listed()
            for container in self.containers.values()
            if wanted.id in ("", container.id)
            and wanted.pod_sandbox_id in ("", container.sandbox.id)
            and (not wanted.HasField("state") or wanted.state.state == container.state)
            and has_labels(container.config.labels, wanted.label_selector)
        ]
        return cri.ListContainersResponse(containers=found)

    async def exec_sync(self, request: Any) -> Any:
        container = self._container(request.container_id)
        if container.child is None or container.finished_ns:
            raise Refusal(grpc.StatusCode.UNKNOWN, f"container {container.id!r} is not running")
        try:
            status, stdout, stderr = await container.child.execute(request.cmd, request.timeout or None)
        except TimeoutError:
            raise Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, f"{request.cmd[0]!r} ran into its limit") from None
        return cri.ExecSyncResponse(stdout=stdout, stderr=stderr, exit_code=status)

    async def image_status(self, request: Any) -> Any:
        name = images.full_name(request.image.image)
        return cri.ImageStatusResponse(image=_image(name) if name in self.known_images else None)

    async def list_images(self, _request: Any) -> Any:
        return cri.ListImagesResponse(images=[_image(name) for name in self.known_images])

    async def pull_image(self, request: Any) -> Any:
        name = images.full_name(request.image.image)
        if name not in self.known_images:
            raise Refusal(
                grpc.StatusCode.NOT_FOUND, f"failed to pull image {name!r}: not found: nothing is pulled here"
            )
        return cri.PullImageResponse(image_ref=name)

    async def stop_all(self) -> None:
        """Take down every pod, going on after one whose network fails."""
        for sandbox in list(self.sandboxes.values()):
            try:
                await self._stop(sandbox)
            except NetworkError as problem:
                _log.warning("a pod's network was not given back", sandbox=sandbox.id, reason=str(problem))
                if sandbox.netns is not None:
                    await netns.remove(sandbox.netns)

    async def _set_up(self, sandbox: Sandbox) -> None:
        if sandbox.on_host_network:
            return
        path = self.folder / "netns" / f"cni-{sandbox.id[:32]}"
        await netns.make(path)
        sandbox.netns = path
        try:
            sandbox.ips = await self.chain.add(sandbox.attachment())
        except NetworkError as problem:
            raise NetworkError(f'failed to setup network for sandbox "{sandbox.id}": {problem}') from problem

    async def _give_up(self, sandbox: Sandbox) -> None:
        """Release what a failed start took; a sandbox whose teardown fails is listed as not ready."""
        try:
            await self._detach(sandbox)
        except NetworkError as problem:
            _log.warning("a failed sandbox stays", sandbox=sandbox.id, reason=str(problem))
            sandbox.ready = False
            self.sandboxes[sandbox.id] = sandbox

    async def _stop(self, sandbox: Sandbox) -> None:
        for container in self._of(sandbox):
            if container.child is not None:
                await container.child.stop(0)
        sandbox.ready = False
        try:
            await self._detach(sandbox)
        except NetworkError as problem:
            raise NetworkError(f'failed to destroy network for sandbox "{sandbox.id}": {problem}') from problem

    async def _detach(self, sandbox: Sandbox) -> None:
        if sandbox.on_host_network:
            return
        await self.chain.delete(sandbox.attachment())
        if sandbox.netns is not None:
            await netns.remove(sandbox.netns)
            sandbox.netns = None

    @property
    def _cdi(self) -> Path:
        return self.folder / "cdi"

    def _cdi_nodes(self, config: Any) -> Sequence[tuple[str, str]]:
        try:
            return device_nodes(self._cdi, (device.name for device in config.CDI_devices))
        except CdiError as unknown:
            raise Refusal(grpc.StatusCode.UNKNOWN, str(unknown)) from unknown

    def _of(self, sandbox: Sandbox) -> list[Container]:
        return [container for container in self.containers.values() if container.sandbox is sandbox]

    def _sandbox(self, key: str) -> Sandbox:
        if key not in self.sandboxes:
            raise Refusal(grpc.StatusCode.NOT_FOUND, f"an error occurred when try to find sandbox {key!r}: not found")
        return self.sandboxes[key]

    def _container(self, key: str) -> Container:
        if key not in self.containers:
            raise Refusal(grpc.StatusCode.NOT_FOUND, f"an error occurred when try to find container {key!r}: not found")
        return self.containers[key]


async def answer(response: Awaitable[Any], context: Any) -> Any:
    """Return a method's response, or end the call with the error as the runtime's client sees it."""
    try:
        return await response
    except Refusal as refusal:
        await context.abort(refusal.code, refusal.message)
    except (NetworkError, NetnsError, StartError) as problem:
        await context.abort(grpc.StatusCode.UNKNOWN, str(problem))


async def _note_end(container: Container, end: Awaitable[int]) -> None:
    container.exit_code = await end
    container.finished_ns = time.time_ns()


def _image(name: str) -> Any:
    return cri.Image(id=name, repo_tags=[name], size=1)
