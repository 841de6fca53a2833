"""A node's CRI shim and CNI server as processes, each started when an attack first needs it.

The shim is before a runtime that answers with nothing, but for what an attack has it answer. The CNI server is that of
a simulated host whose VFs are veths, for which root is needed. Pods 0 and 1 there are innocents, pod 2 is a tenant's.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

from bench.cni import Bench, pod_path, simulated_host
from bench.loads.cri_load import SHIM_ENVIRONMENT
from devcluster.processes import Processes

PROGRAMS = ("shim", "cni")
_PYTHON = (sys.executable, "-m")
# As many as kubelets let run, by default: maxPods.
PODS = 110
# Source: the kubelet's backOffPeriod, and that of its containers.
BACK_OFF_S = 10.0
_RECORDED_S, _DELETED_S, _POLL_S = 240.0, 60.0, 0.1
# The pod on the simulated host that is the attacker's.
TENANT = 2


class NodePrograms:
    """The programs by name; their processes are among ``processes``."""

    def __init__(self, root: Path, processes: Processes) -> None:
        self.shim_socket = root / "shim.sock"
        self.host: Bench
        self.shim_state = root / "shim-state"
        self._root = root
        self._answers = root / "runtime-answers"
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
        self._answers.mkdir()
        self._processes.start("runtime", (*_PYTHON, "bench.hostile.runtime", str(runtime), str(self._answers)))
        self._processes.await_ready("runtime", lambda: _answers(runtime))
        sockets = ("--listen", f"unix://{self.shim_socket}", "--runtime", f"unix://{runtime}")
        folders = ("--state", str(self.shim_state), "--run", str(self._root / "shim-run"))
        command = (*_PYTHON, "cri_shim", *sockets, *folders, "--node-name", "host-0")
        self._processes.start("shim", command, SHIM_ENVIRONMENT)

    def _start_cni(self) -> None:
        folder = self._root / "cni"
        folder.mkdir()
        self.host = self._running.enter_context(simulated_host(folder, self._processes, "cni", pods=3))
        for pod in range(3):
            self.host.record(pod, 1)

    async def recorded(self, pods: int) -> None:
        """Wait until the shim has the records of so many pods; raise TimeoutError."""
        async with asyncio.timeout(_RECORDED_S):
            while len(list((self.shim_state / "pods").glob("*.json"))) < pods:
                await asyncio.sleep(_POLL_S)

    def check_devices(self) -> None:
        """Let the shim check containers for their devices now."""
        os.kill(self._processes.pid("shim"), signal.SIGHUP)

    def forget(self) -> None:
        """Remove the shim's records, as it does itself some time after their pods are gone."""
        for file in (self.shim_state / "pods").iterdir():
            file.unlink()

    def vf(self, pod: int) -> dict[str, object]:
        """Return the VF of a pod of the simulated host, as its record has it."""
        record = json.loads((self.host.layout.state / "pods" / f"u{pod}.json").read_text())
        return dict(record["assignment"]["vfs"][0])

    @contextmanager
    def host_records(self, records: Iterable[tuple[str, str]]) -> Iterator[None]:
        """Let the simulated host have more pod records, each with its uid."""
        files = {self.host.layout.state / "pods" / f"{uid}.json": text for uid, text in records}
        for file, text in files.items():
            file.write_text(text)
        try:
            yield
        finally:
            for file in files:
                file.unlink()

    @asynccontextmanager
    async def held(self, pod: int) -> AsyncIterator[None]:
        """Let a pod of the simulated host have its VF."""
        await self.free(pod)
        await asyncio.to_thread(self.host.ours("ADD", pod)[0].run)
        try:
            yield
        finally:
            await self._deleted(pod)

    async def _deleted(self, pod: int) -> None:
        """Delete a pod's sandbox as the kubelet does, which asks again; raise RuntimeError after a minute."""
        (delete,) = self.host.ours("DEL", pod)
        deadline = time.monotonic() + _DELETED_S
        while True:
            try:
                await asyncio.to_thread(delete.run)
            except RuntimeError:
                if time.monotonic() >= deadline:
                    raise
                await asyncio.sleep(_POLL_S)
            else:
                return

    async def free(self, pod: int) -> None:
        """Wait until the simulated host has the VF of a pod; raise RuntimeError after a minute."""
        await asyncio.to_thread(self.host.settle, slice(pod, pod + 1))

    @contextmanager
    def answered(self, method: str, answer: bytes) -> Iterator[None]:
        """Let the runtime behind the shim answer a method with these bytes."""
        file = self._answers / method
        file.write_bytes(answer)
        try:
            yield
        finally:
            file.unlink()

    @asynccontextmanager
    async def called(
        self, program: str, what: str, content: bytes, calls: int = PODS, pause_s: float = BACK_OFF_S
    ) -> AsyncIterator[None]:
        """Make a call so many times at once, and again after a pause: those of all pods, after a kubelet's back-off."""
        self._attacks += 1
        file, name = self._root / f"calls-{self._attacks}", f"calls-{self._attacks}"
        file.write_bytes(content)
        how = (what, str(calls), str(pause_s), pod_path(TENANT), str(file))
        self._processes.start(name, (*_PYTHON, "bench.hostile.calls", str(self.socket(program)), *how))
        try:
            yield
        finally:
            await asyncio.to_thread(self._processes.kill, name)


def _answers(path: Path) -> bool:
    with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        return True
    return False
