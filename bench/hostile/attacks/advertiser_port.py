"""What a neighbour on the network can do to a node's advertiser, whose port is the host's."""

from collections.abc import AsyncIterator

from bench.hostile.attack import attack
from bench.hostile.stage import Stage, http


@attack("getpfs-half-open", "900 requests of /getpfs are begun and never ended", "advertiser")
async def half_open(stage: Stage) -> AsyncIterator[None]:
    """The kubelet probes the same port."""
    async with stage.held(stage.getpfs_port, 900, b"GET /getpfs HTTP/1.1\r\nHost: x\r\n"):
        yield


@attack("getpfs-flood", "64 clients ask for /getpfs as fast as they are answered", "advertiser")
async def flood(stage: Stage) -> AsyncIterator[None]:
    """Each answer tells what a scan of the host finds."""
    async with stage.flooded(stage.getpfs_port, 64, http("GET", "/getpfs")):
        yield
