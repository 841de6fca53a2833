"""Run inside the lab: a real systemd runs the shim by the unit that is shipped; the shim is killed, hung and stopped.

Prints one JSON object of what was seen. systemd is the first process of a PID namespace of its own, for the lab has an
init already. A drop-in changes the unit only where the lab differs from a host.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc

from tests.support.polling import reaches

UNITS = Path("/run/systemd/system")
WRONG = "runtime 'unix:///run/no.sock' does not answer through this process"
UNIT, SHIPPED = "mooring-cri-shim.service", Path("cli/node/units/mooring-cri-shim.service")
SOCKET, RUNTIME = Path("/run/mooring/cri.sock"), Path("/run/containerd/containerd.sock")
PROGRAM = Path("/opt/mooring/bin/mooring-cri-shim")
ASKED, LOG = Path("/tmp/kubelet.out"), Path("/tmp/shim.log")
ASK = (
    "import grpc; channel = grpc.insecure_channel('unix:///run/mooring/cri.sock');"
    "print('answered', len(channel.unary_unary('/runtime.v1.RuntimeService/Version')(b'', timeout=60)))"
)
# The interpreter of a test may lie below a home, and a test should not wait 30 s for a watchdog. One of few seconds may
# end a healthy shim where other tests take the cores.
DROP_IN = f"[Service]\nProtectHome=no\nWatchdogSec=10\nStandardError=append:{LOG}\n"
TARGET = "[Unit]\nDescription=lab\nDefaultDependencies=no\n"
KUBELET = f"[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=/run/ask\nStandardOutput=file:{ASKED}\n"
# No environment from here; "container" informs systemd that the machine is not its own.
FIRST = "mount -t proc proc /proc; exec env -i container=lab PATH=$PATH /lib/systemd/systemd --system --unit=lab.target"


def write_program(path: Path, *command: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    path.chmod(0o755)


def write_units() -> None:
    """Install the shim's unit, and a kubelet that connects once at its start and declares no order itself."""
    wants = UNITS / "lab.target.wants"
    for folder in (wants, UNITS / f"{UNIT}.d"):
        folder.mkdir(parents=True)
    (UNITS / UNIT).write_text(SHIPPED.read_text())
    (UNITS / f"{UNIT}.d/lab.conf").write_text(DROP_IN)
    (UNITS / "lab.target").write_text(TARGET)
    (UNITS / "kubelet.service").write_text(KUBELET)
    for name in ("kubelet.service", UNIT):
        (wants / name).symlink_to(f"../{name}")


def until(condition: Callable[[], bool], limit_s: float = 90) -> None:
    """Do as `wait_until` does, and fail with the shim's log."""
    assert reaches(condition, limit_s, pause_s=0.1), LOG.read_text() if LOG.exists() else "no log"


class Systemd:
    """The systemd that this scenario started, queried by its own systemctl."""

    def __init__(self) -> None:
        command = ["unshare", "--pid", "--mount", "--fork", "sh", "-c", FIRST]
        self._outer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until(lambda: self._children() != "")
        self._pid = self._children()
        until(lambda: Path(f"/proc/{self._pid}/comm").read_text().strip() == "systemd")

    def _children(self) -> str:
        found = subprocess.run(["pgrep", "-P", str(self._outer.pid)], capture_output=True, text=True, check=False)
        return found.stdout.strip()

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command where this systemd is the first process."""
        command = ["nsenter", "-t", self._pid, "--pid", "--mount", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def ask(self, *words: str) -> str:
        return self.run(*words).stdout.strip()

    def shown(self, name: str) -> str:
        return self.ask("systemctl", "show", "--value", "-p", name, UNIT)

    def signal(self, number: signal.Signals) -> None:
        self.ask("kill", f"-{number}", self.shown("MainPID"))

    def await_another(self, pid: str) -> str:
        """Wait for a shim that is ready and not the one with ``pid``; return its pid."""
        until(lambda: self._ready() not in ("", "0", pid))
        return self._ready()

    def _ready(self) -> str:
        """Return the main process' pid if the unit is active, by one query: of two the second may be another's."""
        shown = self.ask("systemctl", "show", "-p", "ActiveState,MainPID", UNIT).splitlines()
        found = dict(line.split("=", 1) for line in shown)
        return found["MainPID"] if found.get("ActiveState") == "active" else ""

    def end(self) -> None:
        os.kill(int(self._pid), signal.SIGKILL)
        self._outer.wait()


def start_runtime() -> "subprocess.Popen[bytes]":
    folders = ("--folder", "/tmp/small", "--cni-bin", "/tmp/bin", "--cni-conf", "/tmp/conf")
    RUNTIME.parent.mkdir()
    command: Sequence[str] = (sys.executable, "-m", "devcluster.runtime", "--listen", f"unix://{RUNTIME}", *folders)
    runtime = subprocess.Popen(command)
    until(RUNTIME.exists)
    return runtime


def reloads(systemd: Systemd, first: str) -> dict[str, object]:
    """Reload, then reload with a runtime that is not there; a client asks all the time by one channel."""
    with grpc.insecure_channel(f"unix://{SOCKET}") as channel:
        asked = channel.unary_unary("/runtime.v1.RuntimeService/Version")
        asked(b"", timeout=60)
        reloaded = systemd.run("systemctl", "reload", UNIT)
        second = systemd.shown("MainPID")
        both = systemd.ask("systemctl", "status", "--no-pager", "--lines=0", UNIT)
        (UNITS / f"{UNIT}.d/wrong.conf").write_text("[Service]\nEnvironment=MOORING_RUNTIME=unix:///run/no.sock\n")
        systemd.ask("systemctl", "daemon-reload")
        refused = systemd.run("systemctl", "reload", UNIT)
        asked(b"", timeout=60)
    return {
        "reload": [reloaded.returncode, reloaded.stderr, second != first, first in both and second in both],
        "wrong_reload": [refused.returncode, systemd.shown("MainPID") == second, WRONG in LOG.read_text()],
        "state_then": systemd.shown("ActiveState"),
    }


def main() -> None:
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/opt"], check=True)
    write_program(PROGRAM, sys.executable, "-m", "cri_shim")
    write_program(Path("/run/ask"), sys.executable, "-c", ASK)
    write_units()
    runtime = start_runtime()
    systemd = Systemd()
    first = systemd.await_another("")
    until(lambda: ASKED.exists() and ASKED.read_text() != "")
    systemd.signal(signal.SIGKILL)
    after_kill = systemd.await_another(first)
    systemd.signal(signal.SIGSTOP)
    after_hang = systemd.await_another(after_kill)
    seen: dict[str, object] = {
        "kubelet": ASKED.read_text().split()[0],
        "pids": [first, after_kill, after_hang],
        "restarts": systemd.shown("NRestarts"),
        "capabilities": systemd.ask("grep", "CapEff", f"/proc/{after_hang}/status").split()[-1],
        "socket_mode": oct(SOCKET.stat().st_mode & 0o777),
        "state_mode": oct(Path("/var/lib/mooring").stat().st_mode & 0o777),
    }
    seen |= reloads(systemd, after_hang)
    systemd.ask("systemctl", "stop", UNIT)
    seen |= {"result": systemd.shown("Result"), "socket_left": SOCKET.exists(), "run_left": SOCKET.parent.exists()}
    seen["processes_left"] = systemd.ask("pgrep", "-f", "cri_shim")
    systemd.end()
    runtime.terminate()
    runtime.wait()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
