"""Call a node's program for many pods at once, as a process of its own.

    python -m bench.hostile.calls SOCKET WHAT PODS FILE

WHAT is a method of CRI, whose request FILE has, or ADD, whose network configuration it has. Each pod's call is made
again after the kubelet's first back-off. It ends by SIGTERM.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import grpc
from cri_api.v1 import api_pb2 as cri

from bench.cri_load import SERVICE
from cri_shim.proxy import CHANNEL_OPTIONS

ADD = "ADD"
# Source: the kubelet's backOffPeriod, and that of its containers.
_BACK_OFF_S = 10.0
_Call = Callable[[], Awaitable[object]]


async def _again_and_again(call: _Call) -> None:
    while True:
        with suppress(OSError, grpc.aio.AioRpcError):
            await call()
        await asyncio.sleep(_BACK_OFF_S)


def uid(pod: int) -> str:
    return f"bad00000-0000-4000-8000-{pod:012}"


def _to_cni(socket: str, conf: bytes, pod: int) -> _Call:
    environment = {
        "CNI_COMMAND": ADD,
        "CNI_CONTAINERID": f"hostile-{pod}",
        "CNI_NETNS": f"/run/netns/hostile-{pod}",
        "CNI_IFNAME": "net1",
        "CNI_ARGS": f"K8S_POD_NAMESPACE=hostile;K8S_POD_NAME=p{pod};K8S_POD_UID={uid(pod)}",
    }
    head = "\0".join(f"{name}={value}" for name, value in environment.items()).encode()

    async def call() -> None:
        reader, writer = await asyncio.open_unix_connection(socket)
        writer.write(head + b"\0\0" + conf)
        writer.write_eof()
        await reader.read()
        writer.close()

    return call


def _to_shim(channel: grpc.aio.Channel, method: str, request: bytes, pod: int) -> _Call:
    send = channel.unary_unary(SERVICE + method)
    if method == "RunPodSandbox":
        sandbox = cri.RunPodSandboxRequest.FromString(request)
        sandbox.config.metadata.uid = uid(pod)
        return lambda: send(bytes(sandbox.SerializeToString()))
    container = cri.CreateContainerRequest.FromString(request)
    container.sandbox_config.metadata.uid = uid(pod)
    return lambda: send(bytes(container.SerializeToString()))


async def main(socket: str, what: str, pods: int, content: bytes) -> None:
    """Call for so many pods at once, for ever."""
    if what == ADD:
        await asyncio.gather(*(_again_and_again(_to_cni(socket, content, pod)) for pod in range(pods)))
        return
    async with grpc.aio.insecure_channel(f"unix://{socket}", options=CHANNEL_OPTIONS) as channel:
        await asyncio.gather(*(_again_and_again(_to_shim(channel, what, content, pod)) for pod in range(pods)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]).read_bytes()))
