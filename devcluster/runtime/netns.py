"""Make and remove the network namespace of a pod: a bind mount on a file, as containerd's are."""

import asyncio
from pathlib import Path


class NetnsError(Exception):
    """A network namespace that could not be made."""


async def make(path: Path) -> None:
    """Make a new network namespace at ``path``, by a process of its own: this one never leaves its namespace."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    try:
        status, message = await _run("unshare", f"--net={path}", "true")
        if status != 0:
            raise NetnsError(f"network namespace {str(path)!r}: {message}")
    except BaseException:
        await remove(path)
        raise


async def remove(path: Path) -> None:
    """Detach a network namespace and remove its file; it ends with its last user. Do nothing if it is absent."""
    if path.exists():
        try:
            await _run("umount", "--lazy", str(path))
        finally:
            path.unlink(missing_ok=True)


async def _run(*command: str) -> tuple[int, str]:
    """Run a short command to its end, for a cancelled caller too: what follows needs its result."""
    running = asyncio.create_task(_output(*command))
    try:
        return await asyncio.shield(running)
    finally:
        await asyncio.wait([running])


async def _output(*command: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, stderr = await process.communicate()
    return await process.wait(), stderr.decode(errors="replace").strip()
