"""Start the programs of a cluster as child processes, and end exactly those.

Each program has a name, a command and a log file. It can be killed and started again under its name, as a person does
to see that nothing is lost.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# A program that has not ended after so many seconds is killed; containerd takes the longest, about a second.
END_S = 10.0
_POLL_S = 0.02
# Below those that the kernel gives to clients and to listeners without a port, unless an administrator has moved them
# (ip_local_port_range, 32768 to 60999): nothing takes one between the choice and the program's start.
_PORTS = range(20_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens, for programs that are told theirs."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            ports.add(port)
    return list(ports)


class StartError(RuntimeError):
    """A program that did not start: its name, its exit status and the end of its log."""


@dataclass(slots=True)
class Processes:
    """Programs by name, logging to ``<logs>/<name>.log``; end them with `stop`."""

    logs: Path
    _commands: dict[str, tuple[Sequence[str], Mapping[str, str]]] = field(default_factory=dict)
    _running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start a program in a process group of its own."""
        self._commands[name] = (command, environment or {})
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**_environment(), **(environment or {})},
                start_new_session=True,
            )

    def kill(self, name: str, by: signal.Signals = signal.SIGKILL) -> None:
        """End a program, by SIGKILL where no other signal is given: it cannot clean up."""
        process = self._running.pop(name)
        process.send_signal(by)
        process.wait()

    def finish(self, name: str) -> None:
        """Wait until a program has ended by itself; raise StartError unless its status is 0."""
        if status := self._running.pop(name).wait():
            raise StartError(f"{name}: ended with status {status}; the end of its log:\n{self._log_end(name)}")

    def restart(self, name: str) -> None:
        self.start(name, *self._commands[name])

    def command(self, name: str) -> Sequence[str]:
        """Return the command with which a program was started last."""
        return self._commands[name][0]

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def await_ready(self, name: str, ready: Callable[[], bool], limit_s: float = 90.0) -> None:
        """Wait until ``ready()``; raise StartError if the program ends or the limit passes first."""
        deadline = time.monotonic() + limit_s
        while not ready():
            status = self._running[name].poll()
            if status is not None or time.monotonic() > deadline:
                why = f"not ready within {limit_s:.0f} s" if status is None else f"ended with status {status}"
                raise StartError(f"{name}: {why}; the end of its log:\n{self._log_end(name)}")
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """End every program, the last started first; those that do not end by SIGTERM are killed."""
        for name in reversed(list(self._running)):
            process = self._running.pop(name)
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _log_end(self, name: str) -> str:
        return "\n".join((self.logs / f"{name}.log").read_text(errors="replace").splitlines()[-12:])


def _environment() -> dict[str, str]:
    """Return what a program inherits: enough to find commands, nothing that would point it at another cluster."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TERM")
    inherited = os.environ  # noqa: TID251 - the one place where a child's environment is made from ours
    return {name: inherited[name] for name in kept if name in inherited}
