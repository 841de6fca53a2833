"""What a shim does when something else is at its socket's path: nothing, or the link that leads past it."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
from cri_api.v1 import api_pb2 as cri

from cri_shim.plan.bypass_rule import STEADY_S
from tests.cri_shim.served import Shim, stubs
from tests.support.polling import until


async def answers(path: Path) -> bool:
    """Return whether a runtime answers at a socket."""
    async with grpc.aio.insecure_channel(f"unix://{path}") as channel:
        try:
            await stubs(channel)[0].Version(cri.VersionRequest(), timeout=60)
        except grpc.aio.AioRpcError:
            return False
        return True


async def test_a_socket_that_was_removed_comes_back(shim: Shim) -> None:
    """As by a program that cleans /run: neither a restart nor a bypass is needed."""
    shim.socket.unlink()
    await until(shim.socket.exists)
    assert await answers(shim.socket)


async def test_a_link_past_a_shim_that_serves_is_replaced_after_a_trial(shim: Shim) -> None:
    """At no moment is there nothing at the path."""
    _link(shim)
    began_s = asyncio.get_running_loop().time()
    await until(lambda: not shim.socket.is_symlink())
    assert asyncio.get_running_loop().time() - began_s >= STEADY_S
    assert shim.socket.is_socket()
    assert await answers(shim.socket)
    assert shim.count("Version", "OK") == STEADY_S + 1


async def test_a_shim_that_starts_bypassed_does_not_take_the_path_while_its_calls_fail(
    host: Path, fake_runtime: Any
) -> None:
    """Its runtime does not answer through it. Once it has for a while, the shim has the path."""
    shim = Shim(host, fake_runtime)
    _link(shim)
    starting = asyncio.create_task(shim.start(serves=lambda: not shim.socket.is_symlink()))
    await until(lambda: own_names(host))
    assert not await answers(own_names(host)[0])
    assert shim.socket.is_symlink()
    await fake_runtime.start(shim.runtime_socket)
    await starting
    assert await answers(shim.socket)
    await shim.stop()
    assert (own_names(host), shim.socket.exists()) == ([], False), "both names are gone"
    await fake_runtime.stop()


def own_names(host: Path) -> list[Path]:
    return [path for path in host.glob("cri.sock.*") if path.suffix[1:].isdigit()]


def _link(shim: Shim) -> None:
    link = shim.folder / "link"
    link.symlink_to(shim.runtime_socket)
    link.replace(shim.socket)
