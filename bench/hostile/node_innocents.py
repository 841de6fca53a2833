"""Those of a node who have done nothing: calls of the kubelet for a plain pod, and an ADD for a pod with a VF."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc
from cri_api.v1 import api_pb2 as cri

from bench.cri_load import SERVICE
from bench.hostile.node_programs import NodePrograms
from cri_shim.proxy import CHANNEL_OPTIONS

_ANSWER_S = 120.0
_Ask = Callable[[int, Callable[[], None]], Awaitable[None]]


class Kubelet:
    """Calls of CRI for pods that ask for nothing."""

    def __init__(self, node: NodePrograms) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix://{node.shim_socket}", options=CHANNEL_OPTIONS)

    def asked(self) -> dict[str, _Ask]:
        return {"sandbox": self._sandbox, "container": self._container}

    async def leave(self) -> None:
        await self._channel.close()

    async def _sandbox(self, number: int, begin: Callable[[], None]) -> None:
        request = cri.RunPodSandboxRequest(config=_config(number))
        await self._call("RunPodSandbox", bytes(request.SerializeToString()), begin)

    async def _container(self, number: int, begin: Callable[[], None]) -> None:
        container = cri.ContainerConfig(metadata=cri.ContainerMetadata(name="c"), image=cri.ImageSpec(image="busybox"))
        request = cri.CreateContainerRequest(pod_sandbox_id="s", config=container, sandbox_config=_config(number))
        await self._call("CreateContainer", bytes(request.SerializeToString()), begin)

    async def _call(self, method: str, request: bytes, begin: Callable[[], None]) -> None:
        begin()
        await self._channel.unary_unary(SERVICE + method)(request, timeout=_ANSWER_S)


def _config(number: int) -> cri.PodSandboxConfig:
    metadata = cri.PodSandboxMetadata(name=f"plain-{number}", uid=f"plain-{number}", namespace="default")
    return cri.PodSandboxConfig(metadata=metadata)


class ContainerRuntime:
    """ADD for a pod with one VF, and DEL, by the executable that a runtime starts."""

    def __init__(self, node: NodePrograms) -> None:
        self._host = node.host

    def asked(self) -> dict[str, _Ask]:
        return {"add": self._add}

    async def leave(self) -> None:
        """Nothing is held."""

    async def _add(self, _: int, begin: Callable[[], None]) -> None:
        await self._run("DEL")
        await asyncio.to_thread(self._host.settle)
        begin()
        await self._run("ADD")

    async def _run(self, command: str) -> None:
        for job in self._host.ours(command, 0):
            await asyncio.to_thread(job.run)
