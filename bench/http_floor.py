"""Print the CPU, in µs, that aiohttp alone takes for a request like a bind: what no code of ours can go below.

    python -m bench.http_floor KUBECONFIG [--requests 3000]

The Binding is of a pod that does not exist, so the server's answer is a short 404 and nothing else happens.
"""

import argparse
import asyncio
import resource
from collections.abc import Mapping

import aiohttp

from mooring.kube.access import Access, load_access

_BODY = b'{"apiVersion":"v1","kind":"Binding","metadata":{"name":"none"},"target":{"name":"n"}}'.ljust(700)
_AT_ONCE = 32


async def floor(access: Access, requests: int) -> float:
    """Return the µs of CPU a request, user and system, of so many over a few connections."""
    headers = {"Content-Type": "application/json", **access.headers()}
    url = f"{access.server}/api/v1/namespaces/default/pods/none/binding"
    connector = aiohttp.TCPConnector(limit=_AT_ONCE, ssl=access.tls or True)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        await _send(session, url, headers, _AT_ONCE)
        before_s = _cpu_s()
        await _send(session, url, headers, requests)
        return 1e6 * (_cpu_s() - before_s) / requests


async def _send(session: aiohttp.ClientSession, url: str, headers: Mapping[str, str], requests: int) -> None:
    left = iter(range(requests))

    async def one_by_one() -> None:
        for _ in left:
            async with session.post(url, data=_BODY, headers=headers) as answer:
                await answer.read()
                if answer.status != 404:
                    raise ValueError(f"{url}: {answer.status} instead of 404")

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(one_by_one())


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kubeconfig", help="of the server to ask")
    parser.add_argument("--requests", type=int, default=3000, help="requests (default 3000)")
    options = parser.parse_args()
    print(round(asyncio.run(floor(load_access(options.kubeconfig), options.requests))))


if __name__ == "__main__":
    main()
