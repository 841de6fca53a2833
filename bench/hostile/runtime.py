"""A container runtime that answers every call with nothing: `python -m bench.hostile.runtime SOCKET ANSWERS`.

Each message of CRI may be empty. What a call costs is then the shim's. A method of which the folder ANSWERS has a file
is answered with what the file holds, and never while that is the single word "hang".
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import grpc

from cri_shim.proxy import SERVER_OPTIONS

HANG = b"hang"


class _Runtime(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    def __init__(self, answers: Path) -> None:
        self._answers = answers

    def service(self, details: Any) -> Any:
        file = self._answers / Path(details.method).name

        async def once(_request: bytes, _context: Any) -> bytes:
            said = file.read_bytes() if file.exists() else b""
            if said == HANG:
                await asyncio.Event().wait()
            return said

        return grpc.unary_unary_rpc_method_handler(once)


async def main(socket: str, answers: Path) -> None:
    """Serve until killed."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((_Runtime(answers),))
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
