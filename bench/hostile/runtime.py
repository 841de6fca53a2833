"""A container runtime that answers every call with nothing: `python -m bench.hostile.runtime SOCKET`.

Each message of CRI may be empty. What a call costs is then the shim's.
"""

import asyncio
import sys
from typing import Any

import grpc

from cri_shim.proxy import SERVER_OPTIONS


class _Nothing(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    def service(self, _: Any) -> Any:
        async def once(_request: bytes, _context: Any) -> bytes:
            return b""

        return grpc.unary_unary_rpc_method_handler(once)


async def main(socket: str) -> None:
    """Serve until killed."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((_Nothing(),))
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
