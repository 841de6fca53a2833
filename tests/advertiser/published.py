"""What the advertiser has written to its node, and when it is as expected."""

from collections.abc import Callable
from typing import Any

import aiohttp

from devcluster.apiserver.serve import ApiServer
from tests.support.polling import eventually

NODE = "/api/v1/nodes/n1"


async def node(server: ApiServer) -> dict[str, Any]:
    async with aiohttp.ClientSession(server.url) as session, session.get(NODE) as answer:
        found: dict[str, Any] = await answer.json()
        return found


async def node_when(server: ApiServer, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the node as soon as it is as expected."""

    async def wished() -> dict[str, Any] | None:
        found = await node(server)
        return found if holds(found) else None

    return await eventually(wished)


async def until(server: ApiServer, holds: Callable[[dict[str, str]], bool]) -> dict[str, Any]:
    """Return the node as soon as its annotations are as expected."""
    return await node_when(server, lambda found: holds(found["metadata"].get("annotations", {})))
