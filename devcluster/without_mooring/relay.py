"""``python -m devcluster.without_mooring.relay``: lead an address inside a host's network to this machine's port."""

import argparse
import asyncio
import contextlib
import sys

from devcluster.apiserver.http.netns import listen_in

_CHUNK_BYTES = 1 << 16


async def _serve(netns: str, address: tuple[str, int], port: int) -> None:
    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_copy(reader, other_writer), _copy(other_reader, writer))

    async with await asyncio.start_server(pass_on, sock=listen_in(netns, *address)) as server:
        await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError), contextlib.closing(writer):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()


def main() -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m devcluster.without_mooring.relay", description=__doc__)
    parser.add_argument("--netns", required=True, help="the network namespace, by name or path")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT", help="address inside the namespace")
    parser.add_argument("--to", type=int, required=True, help="port on this machine's loopback")
    given = parser.parse_args()
    host, _, port = given.listen.rpartition(":")
    asyncio.run(_serve(given.netns, (host, int(port)), given.to))
    return 0


if __name__ == "__main__":
    sys.exit(main())
