"""Print the CPU, in µs, of a request like a bind by itself: by aiohttp, and by the kept connections of writes.

    python -m bench.http_floor KUBECONFIG [--requests 3000]

The Binding is of a pod that does not exist, so the server's answer is a short 404 and nothing else happens. A bind by
our code cannot cost less.
"""

import argparse
import asyncio
import resource
from collections.abc import Awaitable, Callable

import aiohttp
from uvloop import new_event_loop
from yarl import URL

from mooring.kube.access import Access, load_access
from mooring.kube.connections import Connections

_PATH = "/api/v1/namespaces/default/pods/none/binding"
_BODY = b'{"apiVersion":"v1","kind":"Binding","metadata":{"name":"none"},"target":{"name":"n"}}'.ljust(700)
_AT_ONCE = 32
# Sends one request and returns the answer's status.
_Send = Callable[[], Awaitable[int]]


async def by_aiohttp(access: Access, requests: int) -> float:
    """Return the µs of CPU a request, user and system, of so many over a few connections."""
    headers = {"Content-Type": "application/json", **access.headers()}
    url = URL(access.server + _PATH)
    connector = aiohttp.TCPConnector(limit=_AT_ONCE, ssl=access.tls or True)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def send() -> int:
            async with session.post(url, data=_BODY, headers=headers) as answer:
                await answer.read()
                return answer.status

        return await _weigh(send, requests)


async def by_kept_connections(access: Access, requests: int) -> float:
    """Return the same for `mooring.kube.connections`."""
    server = URL(access.server)
    lines = [f"POST {_PATH} HTTP/1.1", f"Host: {server.host_port_subcomponent}", f"Content-Length: {len(_BODY)}"]
    lines += [f"{name}: {value}" for name, value in access.headers().items()]
    request = "\r\n".join([*lines, "Content-Type: application/json", "", ""]).encode() + _BODY
    connections = Connections(server, access.tls, access.server_name)

    async def send() -> int:
        return (await connections.ask(request, 30.0, lambda: None)).status

    try:
        return await _weigh(send, requests)
    finally:
        connections.close()


async def _weigh(send: _Send, requests: int) -> float:
    await _repeat(send, _AT_ONCE)
    before_s = _cpu_s()
    await _repeat(send, requests)
    return 1e6 * (_cpu_s() - before_s) / requests


async def _repeat(send: _Send, requests: int) -> None:
    left = iter(range(requests))

    async def one_by_one() -> None:
        for _ in left:
            if (status := await send()) != 404:
                raise ValueError(f"{_PATH}: {status} instead of 404")

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(one_by_one())


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def floors(access: Access, requests: int) -> str:
    """Return what a request costs by each."""
    aiohttp_us, kept_us = await by_aiohttp(access, requests), await by_kept_connections(access, requests)
    return f"aiohttp {aiohttp_us:.0f} µs, kept connections {kept_us:.0f} µs"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kubeconfig", help="of the server to ask")
    parser.add_argument("--requests", type=int, default=3000, help="requests (default 3000)")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        print(runner.run(floors(load_access(options.kubeconfig), options.requests)))


if __name__ == "__main__":
    main()
