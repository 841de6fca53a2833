"""Ask for the same again and again, as a process of its own: `python -m bench.hostile.flood PORT CONNECTIONS REQUEST`.

REQUEST is a file with one HTTP request; where it is empty, connections are opened and closed again. Its address is not
that of who is measured. It ends by SIGTERM.
"""

import asyncio
import socket
import sys
from contextlib import suppress
from pathlib import Path

ATTACKER = "127.0.0.2"
# IP_BIND_ADDRESS_NO_PORT of include/uapi/linux/in.h, which Python's socket does not name.
_ADDRESS_ONLY = 24


async def connected(port: int) -> socket.socket:
    """Return a connection from the attacker's address; raise OSError.

    Its own port is chosen by connect. Where tens of thousands wait for their end, bind takes seconds to find one for
    some hundred connections, which would count as what the innocents of the same process wait.
    """
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        connection.setsockopt(socket.IPPROTO_IP, _ADDRESS_ONLY, 1)
        connection.bind((ATTACKER, 0))
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    except BaseException:
        connection.close()
        raise
    return connection


async def _again_and_again(port: int, request: bytes) -> None:
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(sock=await connected(port))
            while True:
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.split(b":")[1]))


async def _open_and_close(port: int) -> None:
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(sock=await connected(port))
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
