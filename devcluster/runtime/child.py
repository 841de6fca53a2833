"""Start a container's process: in the pod's network namespace, with a mount namespace and a /dev of its own.

The root file system is busybox's, shared by all containers and read-only. A tmpfs /dev holds the ordinary devices and
those of the container, bound from the host. So the process sees there only what it was given. The host's mounts are
left behind by pivot_root: a copy of them would keep other pods' network namespaces alive. The process has neither a pid
namespace nor a device cgroup.
"""

import asyncio
import contextlib
import os
import posixpath
import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_ORDINARY_DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
_READY = b"ready\n"


class StartError(Exception):
    """A container's process that could not be started, with the output of its set-up."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a process starts with: ``devices`` are (path in the container, path on the host)."""

    root: Path
    netns: Path | None
    log: Path
    devices: Sequence[tuple[str, str]]
    environment: Mapping[str, str]
    command: Sequence[str]

    @property
    def variables(self) -> Sequence[str]:
        return [f"{name}={value}" for name, value in {"PATH": "/bin", **self.environment}.items()]


def script(start: Start) -> str:
    """Return the shell script that makes the container's mounts and becomes its process."""
    box = shlex.quote(f"{start.root}/bin/busybox")
    devices = [(f"/dev/{name}", f"/dev/{name}") for name in _ORDINARY_DEVICES] + list(start.devices)
    last = f"exec env -i {shlex.join(start.variables)} {shlex.join(start.command)}"
    lines = [
        "set -e",
        f"{box} mount -o bind {shlex.quote(str(start.root))} {shlex.quote(str(start.root))}",
        f"cd {shlex.quote(str(start.root))}",
        f"{box} mount -t tmpfs -o mode=755 tmpfs dev",
        f"{box} mount -t tmpfs tmpfs tmp",
        f"{box} mount -o rbind /proc proc",
        # Refused where the network namespace belongs to another user namespace; nothing here depends on it.
        f"{box} mount -t sysfs sysfs sys || :",
        *(line for inside, host in devices for line in _bind(box, inside.lstrip("/"), host)),
        f"{box} mount -o bind,remount,ro .",
        f"exec 2>>{shlex.quote(str(start.log))}",
        f"{box} pivot_root . run",
        # Before other processes may look in: the host's mounts are under it.
        "/bin/busybox umount -l /run",
        "echo ready",
        "exec >&2 </dev/null",
        f"exec /bin/busybox chroot . /bin/sh -c {shlex.quote(last)}",
    ]
    return "\n".join(lines)


def _bind(box: str, inside: str, host: str) -> Sequence[str]:
    folder, target, source = (shlex.quote(path) for path in (posixpath.dirname(inside), inside, host))
    return (f"{box} mkdir -p {folder}", f"{box} touch {target}", f"{box} mount -o bind {source} {target}")


@dataclass(slots=True)
class Child:
    """A started process; its group has the number of its pid."""

    process: asyncio.subprocess.Process
    variables: Sequence[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait(self) -> int:
        """Wait for its end and return the exit status, 128 + signal number if a signal ended it."""
        status = await self.process.wait()
        return status if status >= 0 else 128 - status

    async def stop(self, grace_s: float) -> None:
        """End the whole group: SIGTERM, after ``grace_s`` seconds SIGKILL."""
        if self.process.returncode is not None:
            return
        if grace_s > 0:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), grace_s)
        self._signal(signal.SIGKILL)
        await self.process.wait()

    async def execute(self, command: Sequence[str], limit_s: float | None) -> tuple[int, bytes, bytes]:
        """Run a command in its namespaces, with its environment; raise TimeoutError after ``limit_s`` seconds."""
        pipe = asyncio.subprocess.PIPE
        enter = ("nsenter", f"--target={self.pid}", "--net", "--mount", "/bin/busybox", "env", "-i")
        beside = await asyncio.create_subprocess_exec(
            *(*enter, *self.variables, *command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
        try:
            stdout, stderr = await asyncio.wait_for(beside.communicate(), limit_s)
        finally:
            if beside.returncode is None:
                kill_group(beside)
            status = await beside.wait()
        return status, stdout, stderr

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def kill_group(leader: asyncio.subprocess.Process) -> None:
    """Kill a process and what it has started: asyncio waits until all of them have closed its pipes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)


async def launch(start: Start) -> Child:
    """Start a process and return once its mounts are in place; raise StartError if they cannot be made."""
    with start.log.open("ab") as log:
        process = await _spawn(start, log)
    assert process.stdout is not None, "asked for above"
    started = Child(process, start.variables)
    try:
        if await process.stdout.readline() != _READY:
            raise StartError(start.log.read_text(encoding="utf-8", errors="replace")[-500:].strip())
    except BaseException:
        await started.stop(0)
        raise
    return started


async def _spawn(start: Start, log: IO[bytes]) -> asyncio.subprocess.Process:
    netns = () if start.netns is None else ("nsenter", f"--net={start.netns}")
    return await asyncio.create_subprocess_exec(
        *netns,
        *("unshare", "--mount", "sh", "-c", script(start)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
        start_new_session=True,
    )
