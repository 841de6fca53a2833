"""The shim's own calls to the runtime, beside the kubelet's calls that it forwards.

Every method raises grpc's AioRpcError, and DecodeError for an answer that is not CRI. A list contains the annotations
of every pod on the node, so its entries are decoded in a thread, to keep the event loop free.
"""

import asyncio
from collections.abc import Mapping, Sequence

import grpc

from cri_shim.pb import cri_pb2 as cri
from cri_shim.plan.container_devices import device_numbers, grace_s
from cri_shim.proxy.proxy import CRI_PREFIX

_LIST_S = 60.0  # A busy runtime with thousands of sandboxes takes seconds.
_ANSWER_S = 10.0
_RUNNING_CONTAINERS = cri.ListContainersRequest(
    filter=cri.ContainerFilter(state=cri.ContainerStateValue(state=cri.CONTAINER_RUNNING))
)


class Runtime:
    """The runtime behind ``channel``."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def sandbox_uids(self) -> Mapping[str, str]:
        """Return pod uids by sandbox id."""
        raw = await self._ask("ListPodSandbox", b"", _LIST_S)
        return await asyncio.to_thread(_read_sandbox_uids, raw)

    async def sandboxes(self) -> Sequence[cri.PodSandbox]:
        """Return all sandboxes, ready or not."""
        raw = await self._ask("ListPodSandbox", b"", _LIST_S)
        return await asyncio.to_thread(_read_sandboxes, raw)

    async def version(self) -> cri.VersionResponse:
        """Return the runtime's name and version."""
        return cri.VersionResponse.FromString(await self._ask("Version", b"", _ANSWER_S))

    async def verbose_status(self) -> cri.StatusResponse:
        """Return the runtime's status, with its configuration if the runtime reports it."""
        raw = await self._ask("Status", cri.StatusRequest(verbose=True).SerializeToString(), _ANSWER_S)
        return cri.StatusResponse.FromString(raw)

    async def running_containers(self) -> Sequence[cri.Container]:
        """Return the running containers."""
        raw = await self._ask("ListContainers", _RUNNING_CONTAINERS.SerializeToString(), _LIST_S)
        return await asyncio.to_thread(_read_containers, raw)

    async def devices_of(self, container: str) -> frozenset[str]:
        """Return the devices of a container as ``major:minor``; raise UnreadableSpecError."""
        request = cri.ContainerStatusRequest(container_id=container, verbose=True)
        raw = await self._ask("ContainerStatus", request.SerializeToString(), _ANSWER_S)
        return device_numbers(cri.ContainerStatusResponse.FromString(raw))

    async def stop(self, container: cri.Container) -> None:
        """Stop a container, with its pod's termination grace period."""
        request = cri.StopContainerRequest(container_id=container.id, timeout=grace_s(container))
        await self._ask("StopContainer", request.SerializeToString(), request.timeout + _LIST_S)

    async def _ask(self, method: str, request: bytes, limit_s: float) -> bytes:
        call = self._channel.unary_unary(f"{CRI_PREFIX}RuntimeService/{method}")
        answer: bytes = await call(request, timeout=limit_s)
        return answer


def _read_sandbox_uids(raw: bytes) -> dict[str, str]:
    return {sandbox.id: sandbox.metadata.uid for sandbox in _read_sandboxes(raw)}


def _read_sandboxes(raw: bytes) -> list[cri.PodSandbox]:
    return list(map(cri.PodSandbox.FromString, cri.ListPodSandboxResponse.FromString(raw).items))


def _read_containers(raw: bytes) -> list[cri.Container]:
    return list(map(cri.Container.FromString, cri.ListContainersResponse.FromString(raw).containers))
