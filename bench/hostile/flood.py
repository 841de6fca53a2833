"""Ask for the same again and again, as a process of its own: `python -m bench.hostile.flood PORT CONNECTIONS REQUEST`.

REQUEST is a file with one HTTP request; where it is empty, connections are opened and closed again. Its address is not
that of who is measured. It ends by SIGTERM.
"""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

ATTACKER = "127.0.0.2"


async def _again_and_again(port: int, request: bytes) -> None:
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ATTACKER, 0))
            while True:
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.split(b":")[1]))


async def _open_and_close(port: int) -> None:
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ATTACKER, 0))
            writer.transport.abort()
        # Its own loop takes in what has happened.
        await asyncio.sleep(0)


async def main(port: int, connections: int, request: Path) -> None:
    """Ask on so many connections at once, for ever."""
    content = request.read_bytes()
    each = (_again_and_again(port, content) if content else _open_and_close(port) for _ in range(connections))
    await asyncio.gather(*each)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
