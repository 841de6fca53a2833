"""Run a command in the namespaces and the root folder of the host's process 1, as nsenter does.

The pod shares the host's process namespace, so /proc/1 is the host's. Its other namespaces are entered in the child
between fork and exec: Python has setns from 3.12 on, so it is called in the C library (setns(2)).
"""

import asyncio
import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

_NAMESPACES = ("mnt", "uts", "ipc", "net")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended: its exit status, and what it printed on both streams."""

    status: int
    output: str
    errors: str


@dataclass(frozen=True, slots=True)
class HostProcess:
    """The process whose namespaces and root folder are the host's."""

    pid: int = 1

    async def run(self, command: Sequence[str], say: Callable[[str], None] = lambda _line: None) -> Outcome:
        """Run a command on the host; ``say`` gets each line of its output at once. Raise OSError if it cannot start.

        A command that has begun is awaited even if the caller is cancelled: the pod's end gives it the time to finish.
        """
        with ExitStack() as opened:
            child = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={"PATH": self._path(), "LC_ALL": "C.UTF-8"},
                preexec_fn=self._entry(opened),
            )
        ends = asyncio.ensure_future(_ended(child, say))
        try:
            return await asyncio.shield(ends)
        except asyncio.CancelledError:
            await ends
            raise

    def _path(self) -> str:
        """Return the folders of commands: those of process 1, then the usual ones."""
        settings = Path(f"/proc/{self.pid}/environ").read_bytes().decode(errors="replace").split("\0")
        return ":".join([*(line.removeprefix("PATH=") for line in settings if line.startswith("PATH=")), _PATH])

    def _entry(self, opened: ExitStack) -> Callable[[], None]:
        def descriptor(path: str, flags: int) -> int:
            number = os.open(f"/proc/{self.pid}/{path}", flags | os.O_CLOEXEC)
            opened.callback(os.close, number)
            return number

        spaces = [descriptor(f"ns/{name}", os.O_RDONLY) for name in _NAMESPACES]
        root = descriptor("root", os.O_PATH | os.O_DIRECTORY)

        def enter() -> None:
            for space in spaces:
                if _libc.setns(space, 0) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            # Process 1 may have another root than its mount namespace.
            os.fchdir(root)
            os.chroot(".")
            os.chdir("/")

        return enter


async def _ended(child: asyncio.subprocess.Process, say: Callable[[str], None]) -> Outcome:
    assert child.stdout is not None, "its output is a pipe"
    assert child.stderr is not None, "its errors are a pipe"
    output, errors, status = await asyncio.gather(_lines(child.stdout, say), _lines(child.stderr, say), child.wait())
    return Outcome(status, output, errors)


async def _lines(stream: asyncio.StreamReader, say: Callable[[str], None]) -> str:
    text = ""
    async for line in stream:
        text += (decoded := line.decode(errors="replace"))
        say(decoded.rstrip("\n"))
    return text
