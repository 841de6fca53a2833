"""Call a node's program many times at once, as a process of its own.

    python -m bench.hostile.calls SOCKET WHAT CALLS SECONDS NETNS FILE

WHAT is a method of CRI, whose request FILE has, or ADD, whose network configuration it has. Where FILE has the uid of
pod 0, each call has that of a pod of its own. A call is made again so many SECONDS after its answer. NETNS is the
network namespace of an ADD. It ends by SIGTERM.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import grpc

from bench.loads.cri_load import SERVICE
from cri_shim.proxy.proxy import CHANNEL_OPTIONS

ADD = "ADD"
AT_ONCE = ("RunPodSandbox", "CreateContainer")
_Call = Callable[[], Awaitable[object]]


async def _again_and_again(call: _Call, pause_s: float, from_s: float = 0.0) -> None:
    await asyncio.sleep(from_s)
    while True:
        with suppress(OSError, grpc.aio.AioRpcError):
            await call()
        await asyncio.sleep(pause_s)


def uid(pod: int) -> str:
    """Return the uid of one of the attacker's pods; all are of one length."""
    return f"bad00000-0000-4000-8000-{pod:012}"


def _of(pod: int, content: bytes) -> bytes:
    """Return what is written for pod 0 for another one."""
    return content.replace(uid(0).encode(), uid(pod).encode())


def _to_cni(socket: str, conf: bytes, netns: str, pod: int) -> _Call:
    environment = {
        "CNI_COMMAND": ADD,
        "CNI_CONTAINERID": f"hostile-{pod}",
        "CNI_NETNS": netns,
        "CNI_IFNAME": "net1",
        "CNI_ARGS": f"K8S_POD_NAMESPACE=hostile;K8S_POD_NAME=p{pod};K8S_POD_UID={uid(pod)}",
    }
    head = "\0".join(f"{name}={value}" for name, value in environment.items()).encode()

    async def call() -> None:
        reader, writer = await asyncio.open_unix_connection(socket)
        try:
            writer.write(head + b"\0\0" + conf)
            writer.write_eof()
            await reader.read()
        finally:
            writer.close()

    return call


async def main(socket: str, what: str, calls: int, pause_s: float, netns: str, content: bytes) -> None:
    """Make so many calls at once, for ever."""
    if what == ADD:
        adds = (_to_cni(socket, _of(pod, content), netns, pod) for pod in range(calls))
        await asyncio.gather(*(_again_and_again(add, pause_s) for add in adds))
        return
    async with grpc.aio.insecure_channel(f"unix://{socket}", options=CHANNEL_OPTIONS) as channel:
        send = channel.unary_unary(SERVICE + what)
        each = (partial(send, _of(pod, content)) for pod in range(calls))
        # The kubelet spreads what it does again and again, such as probes, over its period.
        between_s = 0.0 if what in AT_ONCE else pause_s / calls
        await asyncio.gather(*(_again_and_again(one, pause_s, between_s * pod) for pod, one in enumerate(each)))


if __name__ == "__main__":
    _, _socket, _what, _calls, _seconds, _netns, _file = sys.argv
    asyncio.run(main(_socket, _what, int(_calls), float(_seconds), _netns, Path(_file).read_bytes()))
