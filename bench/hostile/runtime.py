"""A container runtime that answers every call with nothing: `python -m bench.hostile.runtime SOCKET ANSWERS`.

Each message of CRI may be empty. What a call costs is then the shim's. A method of which the folder ANSWERS has a file
is answered with what the file holds, and never while that is the single word "hang".

A runtime is many threads, and this is one. So that nobody waits for it who should wait for the shim alone, calls of
ExecSync wait to be accepted behind others of ExecSync only, and one answer at a time is handed to grpc.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import grpc

from cri_shim.proxy.exec_sync import RUNTIME_SERVICE
from cri_shim.proxy.proxy import SERVER_OPTIONS

HANG = b"hang"


class _Runtime(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    def __init__(self, answers: Path) -> None:
        self._answers = answers
        self._read: dict[str, tuple[int, bytes]] = {}
        self._turn = asyncio.Lock()

    def service(self, details: Any) -> Any:
        return self.handler(Path(details.method).name)

    def handler(self, method: str) -> Any:
        async def once(_request: bytes, _context: Any) -> bytes:
            said = self._said(method)
            if said == HANG:
                await asyncio.Event().wait()
            if not said:
                return said
            async with self._turn:
                await asyncio.sleep(0)
                return said

        return grpc.unary_unary_rpc_method_handler(once)

    def _said(self, method: str) -> bytes:
        file = self._answers / method
        if not file.exists():
            return b""
        written = file.stat().st_mtime_ns
        if self._read.get(method, (0, b""))[0] != written:
            self._read[method] = (written, file.read_bytes())
        return self._read[method][1]


async def main(socket: str, answers: Path) -> None:
    """Serve until killed."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    runtime = _Runtime(answers)
    server.add_generic_rpc_handlers((runtime,))
    server.add_registered_method_handlers(RUNTIME_SERVICE, {"ExecSync": runtime.handler("ExecSync")})
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
