"""A node's CRI shim and CNI server as processes, each started when an attack first needs it.

The shim is before a runtime that answers with nothing. The CNI server is that of a simulated host whose VFs are veths,
for which root is needed.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

from bench.cni import Bench, simulated_host
from devcluster.processes import Processes

PROGRAMS = ("shim", "cni")
_PYTHON = (sys.executable, "-m")
# As many as kubelets let run, by default: maxPods.
_PODS = 110


class NodePrograms:
    """The programs by name; their processes are among ``processes``."""

    def __init__(self, root: Path, processes: Processes) -> None:
        self.shim_socket = root / "shim.sock"
        self.host: Bench
        self._root = root
        self._processes = processes
        self._running = ExitStack()
        self._started: set[str] = set()
        self._attacks = 0

    def restart(self, program: str) -> None:
        """Start a program, or start it again; return when it answers."""
        if program in self._started:
            self._processes.kill(program)
            self._processes.restart(program)
        else:
            self._started.add(program)
            (self._start_shim if program == "shim" else self._start_cni)()
        self._processes.await_ready(program, lambda: _answers(self.socket(program)))

    def socket(self, program: str) -> Path:
        return self.shim_socket if program == "shim" else self.host.layout.run / "cni.sock"

    def stop(self) -> None:
        """Take the simulated host down."""
        self._running.close()

    def _start_shim(self) -> None:
        runtime = self._root / "runtime.sock"
        self._processes.start("runtime", (*_PYTHON, "bench.hostile.runtime", str(runtime)))
        self._processes.await_ready("runtime", lambda: _answers(runtime))
        sockets = ("--listen", f"unix://{self.shim_socket}", "--runtime", f"unix://{runtime}")
        folders = ("--state", str(self._root / "shim-state"), "--run", str(self._root / "shim-run"))
        self._processes.start("shim", (*_PYTHON, "cri_shim", *sockets, *folders, "--node-name", "host-0"))

    def _start_cni(self) -> None:
        folder = self._root / "cni"
        folder.mkdir()
        self.host = self._running.enter_context(simulated_host(folder, self._processes, "cni", pods=1))
        self.host.record(0, 1)

    @asynccontextmanager
    async def called(self, program: str, what: str, content: bytes) -> AsyncIterator[None]:
        """Let all pods of a node make a call at once, and again after a kubelet's back-off."""
        self._attacks += 1
        file, name = self._root / f"calls-{self._attacks}", f"calls-{self._attacks}"
        file.write_bytes(content)
        module = (*_PYTHON, "bench.hostile.calls", str(self.socket(program)), what, str(_PODS), str(file))
        self._processes.start(name, module)
        try:
            yield
        finally:
            await asyncio.to_thread(self._processes.kill, name)


def _answers(path: Path) -> bool:
    with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        return True
    return False
