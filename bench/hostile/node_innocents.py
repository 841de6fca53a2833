"""Those of a node who have done nothing: calls of the kubelet for plain pods, and of the runtime for pods with a VF."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import grpc
from cri_api.v1 import api_pb2 as cri

from bench.cni import Job
from bench.hostile.node_programs import NodePrograms
from bench.loads.cri_load import SERVICE
from cri_shim.proxy.proxy import CHANNEL_OPTIONS

_ANSWER_S = 120.0
_Ask = Callable[[int, Callable[[], None]], Awaitable[None]]
# Seven variables for each service of the namespace: what the kubelet gives each container, if nobody asks otherwise.
_SERVICES = 80


class Kubelet:
    """Calls of CRI for pods that ask for nothing, and one that is only forwarded.

    A container in a namespace with many services is beyond what the shim works on at once.
    """

    def __init__(self, node: NodePrograms) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix://{node.shim_socket}", options=CHANNEL_OPTIONS)

    def asked(self) -> dict[str, _Ask]:
        return {
            "status": self._status,
            "sandbox": self._sandbox,
            "container": self._container,
            "services": self._with_services,
        }

    async def leave(self) -> None:
        await self._channel.close()

    async def _status(self, _: int, begin: Callable[[], None]) -> None:
        await self._call("Status", b"", begin)

    async def _sandbox(self, number: int, begin: Callable[[], None]) -> None:
        request = cri.RunPodSandboxRequest(config=_config(number))
        await self._call("RunPodSandbox", bytes(request.SerializeToString()), begin)

    async def _container(self, number: int, begin: Callable[[], None]) -> None:
        await self._call("CreateContainer", container(number, services=0), begin)

    async def _with_services(self, number: int, begin: Callable[[], None]) -> None:
        await self._call("CreateContainer", container(number, _SERVICES), begin)

    async def _call(self, method: str, request: bytes, begin: Callable[[], None]) -> None:
        begin()
        await self._channel.unary_unary(SERVICE + method)(request, timeout=_ANSWER_S)


def container(number: int, services: int) -> bytes:
    """Return a CreateContainer in a namespace with so many services.

    Source of the variables: FromServices in pkg/kubelet/envvars/envvars.go of Kubernetes.
    """
    variables: dict[str, str] = {}
    for service in range(services):
        name, address = f"SERVICE_{service:03}", f"10.96.0.{service}"
        port = f"{name}_PORT_80_TCP"
        variables |= {f"{name}_SERVICE_HOST": address, f"{name}_SERVICE_PORT": "80"}
        variables |= {f"{name}_PORT": f"tcp://{address}:80", port: f"tcp://{address}:80"}
        variables |= {f"{port}_PROTO": "tcp", f"{port}_PORT": "80", f"{port}_ADDR": address}
    config = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name="c"),
        image=cri.ImageSpec(image="busybox"),
        envs=[cri.KeyValue(key=key, value=value) for key, value in variables.items()],
    )
    request = cri.CreateContainerRequest(pod_sandbox_id="s", config=config, sandbox_config=_config(number))
    return bytes(request.SerializeToString())


def _config(number: int) -> cri.PodSandboxConfig:
    metadata = cri.PodSandboxMetadata(name=f"plain-{number}", uid=f"plain-{number}", namespace="default")
    return cri.PodSandboxConfig(metadata=metadata)


class ContainerRuntime:
    """ADD for a pod with one VF, DEL for another one, and STATUS, by the executable that a runtime starts."""

    def __init__(self, node: NodePrograms) -> None:
        self._host = node.host

    def asked(self) -> dict[str, _Ask]:
        return {"add": self._add, "del": self._del, "status": self._status}

    async def leave(self) -> None:
        """Nothing is held."""

    async def _add(self, _: int, begin: Callable[[], None]) -> None:
        await self._free(0)
        begin()
        await self._run("ADD", 0)

    async def _del(self, _: int, begin: Callable[[], None]) -> None:
        await self._free(1)
        await self._run("ADD", 1)
        begin()
        await self._run("DEL", 1)

    async def _status(self, _: int, begin: Callable[[], None]) -> None:
        begin()
        await asyncio.to_thread(_status_of(self._host.ours("ADD", 0)[0]).run)

    async def _free(self, pod: int) -> None:
        await self._run("DEL", pod)
        await asyncio.to_thread(self._host.settle, slice(pod, pod + 1))

    async def _run(self, command: str, pod: int) -> None:
        for job in self._host.ours(command, pod):
            await asyncio.to_thread(job.run)


def _status_of(add: Job) -> Job:
    """Return the STATUS of an ADD's network; not every version of host-local knows it."""
    kept = {name: value for name, value in add.environment.items() if name in ("CNI_PATH", "PATH")}
    conf = {name: value for name, value in json.loads(add.stdin).items() if name not in ("ipam", "runtimeConfig")}
    stdin = json.dumps(conf | {"cniVersion": "1.1.0"}).encode()
    return replace(add, environment=kept | {"CNI_COMMAND": "STATUS"}, stdin=stdin)
