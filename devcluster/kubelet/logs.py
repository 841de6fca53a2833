"""Serve container logs for `kubectl logs`: GET /containerLogs/<namespace>/<pod>/<container>.

The runtime writes the files; a line consists of a time, the stream, F or P (whole or part of a line), and the text
(CRI's log format). As in the real kubelet they are <folder>/<namespace>_<pod>_<uid>/<container>/<attempt>.log.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

PORT = 10250
_POLL_S = 0.5


def log_folder(folder: Path, namespace: str, name: str, uid: str) -> Path:
    """Return the folder of a pod's logs."""
    return folder / f"{namespace}_{name}_{uid}"


@asynccontextmanager
async def serving(folder: Path, address: str) -> AsyncIterator[None]:
    """Serve the logs below ``folder`` at a node's address."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return await _answer(request, folder)

    application = web.Application()
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, address, PORT).start()
    try:
        yield
    finally:
        await runner.cleanup()


async def _answer(request: web.Request, folder: Path) -> web.StreamResponse:
    asked = request.match_info
    found = sorted(folder.glob(f"{asked['namespace']}_{asked['pod']}_*/{asked['container']}/*.log"), key=_attempt)
    which = -2 if request.query.get("previous") == "true" else -1
    if len(found) < -which:
        raise web.HTTPBadRequest(text=f'container "{asked["container"]}" in pod "{asked["pod"]}" has no log yet')
    lines = found[which].read_bytes().splitlines()
    last = request.query.get("tailLines")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    await response.write(_text(lines[-int(last) :] if last and int(last) else [] if last else lines))
    if request.query.get("follow") == "true":
        await _follow(found[which], len(lines), response)
    return response


async def _follow(path: Path, read: int, response: web.StreamResponse) -> None:
    """Send what is appended, until the client disconnects."""
    while True:
        await asyncio.sleep(_POLL_S)
        lines = path.read_bytes().splitlines()
        if len(lines) > read:
            await response.write(_text(lines[read:]))
            read = len(lines)


def _attempt(path: Path) -> tuple[str, int]:
    return path.parent.parent.name, int(path.stem)


def _text(lines: list[bytes]) -> bytes:
    """Return what the container wrote, from CRI's lines."""
    parts = [line.split(b" ", 3) for line in lines]
    return b"".join(part[3] + (b"\n" if part[2] == b"F" else b"") for part in parts if len(part) == 4)
