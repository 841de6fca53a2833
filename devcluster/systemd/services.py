"""Run the services of one simulated host, as systemd does: start, readiness, restart, end; their timers and paths."""

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import structlog

from devcluster.systemd.units import PathUnit, Timer, Unit, in_order, parse, parse_path, parse_timer, read_environment

_log = structlog.get_logger()
FOLDER = Path("/etc/systemd/system")
# The services' output, for `journalctl -u`.
JOURNAL = Path("/var/log/journal")
# The sockets on which services report readiness.
NOTIFY = Path("/run/systemd")
# The packages of the runtimes that mooring-node has installed, and the module that an interpreter imports at its start.
RUNTIMES = "opt/mooring/versions/*/python/lib/python3.11/dist-packages"
_SITE = Path("/devcluster/site/sitecustomize.py")
_TIMER, _PATH = ".timer", ".path"
# systemd is told by inotify.
_LOOK_S = 0.2
# A service that reports readiness has so many seconds (DefaultTimeoutStartSec).
_READY_S = 90.0
_Trigger = TypeVar("_Trigger")


def simulate_vf_settings(root: Path = Path("/")) -> None:
    """Put the one file of a simulated host into each installed runtime: its interpreter reads no PYTHONPATH."""
    for folder in root.glob(RUNTIMES):
        if not (link := folder / _SITE.name).is_symlink():
            link.symlink_to(_SITE)


class UnitError(RuntimeError):
    """A unit that does not exist, cannot be read, or did not start; in systemd's words."""


@dataclass(slots=True)
class Service:
    """One unit's process; ``wanted`` is true if it should be running."""

    unit: Unit
    environment: Mapping[str, str]
    wanted: bool = False
    process: asyncio.subprocess.Process | None = None
    _keeper: "asyncio.Task[None] | None" = None

    @property
    def is_active(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        """Start it and return when it is ready; raise UnitError. Do nothing if it runs."""
        if self.is_active:
            return
        if any(not Path(path).exists() for path in self.unit.needs):
            return
        self.wanted = True
        await self._launch()
        self._keeper = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """End it: SIGTERM, SIGKILL after its timeout."""
        self.wanted = False
        if self._keeper is not None:
            await _cancel(self._keeper)
            self._keeper = None
        if self.process is None or self.process.returncode is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.process.wait(), self.unit.stop_s)
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self.process.wait()

    async def _launch(self) -> None:
        simulate_vf_settings()
        for path, mode in self.unit.folders:
            Path(path).mkdir(parents=True, exist_ok=True)
            Path(path).chmod(mode)
        JOURNAL.mkdir(parents=True, exist_ok=True)
        with _notified(self.unit) as listener:
            told = {"NOTIFY_SOCKET": listener.getsockname()} if listener is not None else {}
            variables = {**self.environment, **_variables(self.unit), **told}
            command = self.unit.command(variables)
            with (JOURNAL / f"{self.unit.name}.log").open("ab") as log:
                self.process = await asyncio.create_subprocess_exec(
                    *command, env=variables, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                )  # fmt: skip
            if listener is not None:
                await self._await_ready(self.process, listener)

    async def _await_ready(self, process: asyncio.subprocess.Process, listener: socket.socket) -> None:
        ready, ended = asyncio.create_task(_hears_ready(listener)), asyncio.create_task(process.wait())
        try:
            done, _ = await asyncio.wait((ready, ended), timeout=_READY_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (ready, ended):
                task.cancel()
        if ready not in done:
            self._signal(signal.SIGKILL)
            raise UnitError(f"Job for {self.unit.name} failed because the control process exited or timed out.")

    async def _keep(self) -> None:
        """Restart it whenever it ends, if its unit requires that."""
        while self.wanted and self.process is not None:
            status = await self.process.wait()
            _log.info("service ended", unit=self.unit.name, status=status)
            if not self.unit.restarts:
                return
            await asyncio.sleep(self.unit.restart_s)
            with contextlib.suppress(UnitError, OSError):
                await self._launch()

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None, "it was started"
        with contextlib.suppress(ProcessLookupError):
            if self.unit.main_process_only:
                os.kill(self.process.pid, number)
            else:
                os.killpg(self.process.pid, number)


@dataclass(slots=True)
class Services:
    """All services of a host by name; a unit is read when it is started."""

    environment: Mapping[str, str]
    running: dict[str, Service] = field(default_factory=dict)
    # Of timers and paths.
    triggers: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    booted_s: float = field(default_factory=time.monotonic)

    async def start_enabled(self) -> None:
        """Start what the boot targets want, in the order that the units require."""
        wanted = sorted({path.name for path in FOLDER.glob("*.target.wants/*.service")})
        for unit in in_order([load(name) for name in wanted]):
            try:
                await self.start(unit.name)
            except (UnitError, OSError) as failed:
                _log.error("service not started", unit=unit.name, reason=str(failed))
        for name in sorted({path.name for kind in (_TIMER, _PATH) for path in FOLDER.glob(f"*.target.wants/*{kind}")}):
            await self.start(name)

    async def start(self, name: str) -> None:
        if name.endswith((_TIMER, _PATH)):
            if not self.is_active(name):
                if name.endswith(_TIMER):
                    work = self._run(load_trigger(name, parse_timer))
                else:
                    work = self._watch(load_trigger(name, parse_path))
                self.triggers[name] = asyncio.create_task(work)
            return
        service = self.running.get(name)
        if service is None or not service.is_active:
            service = self.running[name] = Service(load(name), self.environment)
        await service.start()

    async def stop(self, name: str) -> None:
        if (trigger := self.triggers.pop(name, None)) is not None:
            await _cancel(trigger)
        service = self.running.get(name)
        if service is not None:
            await service.stop()

    async def restart(self, name: str) -> None:
        await self.stop(name)
        await self.start(name)

    async def try_restart(self, name: str) -> None:
        if self.is_active(name):
            await self.restart(name)

    def is_active(self, name: str) -> bool:
        if name in self.triggers:
            return not self.triggers[name].done()
        return name in self.running and self.running[name].is_active

    def has_failed(self, name: str) -> bool:
        """Return whether the unit's last process has ended by itself, with another status than 0."""
        service = self.running.get(name)
        return (
            service is not None and service.wanted and service.process is not None and bool(service.process.returncode)
        )

    async def _run(self, timer: Timer) -> None:
        """Start the timer's service when it is due, for as long as the timer is active."""
        await asyncio.sleep(max(self.booted_s + timer.boot_s - time.monotonic(), 0.0))
        while True:
            try:
                await self.start(timer.service)
            except (UnitError, OSError) as failed:
                _log.error("service not started", unit=timer.service, reason=str(failed))
            await asyncio.sleep(timer.active_s)

    async def _watch(self, unit: PathUnit) -> None:
        """Start the path's service while its conditions hold, and it does not run."""
        seen = _stamps(unit)
        while True:
            now = _stamps(unit)
            if not self.is_active(unit.service) and (_is_met(unit) or now != seen):
                seen = now
                try:
                    await self.start(unit.service)
                except (UnitError, OSError) as failed:
                    _log.error("service not started", unit=unit.service, reason=str(failed))
            await asyncio.sleep(_LOOK_S)

    async def stop_all(self) -> None:
        for name in [*self.triggers]:
            await self.stop(name)
        for unit in reversed(in_order([service.unit for service in self.running.values()])):
            await self.stop(unit.name)


def load(name: str) -> Unit:
    """Read a unit with its drop-ins; raise UnitError without one."""
    path = FOLDER / name
    if not path.exists():
        raise UnitError(f"Unit {name} not found.")
    drop_ins = sorted((FOLDER / f"{name}.d").glob("*.conf"))
    try:
        return parse(name, [each.read_text(encoding="utf-8") for each in (path, *drop_ins)])
    except ValueError as wrong:
        raise UnitError(f"Unit {name} has a bad unit file setting: {wrong}") from wrong


def load_trigger(name: str, read: Callable[[str, str], _Trigger]) -> _Trigger:
    """Read a timer or a path; raise UnitError without one."""
    path = FOLDER / name
    if not path.exists():
        raise UnitError(f"Unit {name} not found.")
    try:
        return read(name, path.read_text(encoding="utf-8"))
    except ValueError as wrong:
        raise UnitError(f"Unit {name} has a bad unit file setting: {wrong}") from wrong


def _is_met(unit: PathUnit) -> bool:
    folders = (Path(folder) for folder in unit.not_empty)
    return any(Path(path).exists() for path in unit.exists) or any(
        folder.is_dir() and any(folder.iterdir()) for folder in folders
    )


def _stamps(unit: PathUnit) -> list[int]:
    return [path.stat().st_mtime_ns if path.exists() else 0 for path in map(Path, unit.changed)]


def _variables(unit: Unit) -> dict[str, str]:
    found = dict(unit.environment)
    for name in unit.environment_files:
        path = Path(name.removeprefix("-"))
        if path.exists() or not name.startswith("-"):
            found |= read_environment(path.read_text(encoding="utf-8"))
    return found


@contextlib.contextmanager
def _notified(unit: Unit) -> Iterator[socket.socket | None]:
    """Listen for the readiness of a unit of type notify (sd_notify(3)); None for other types."""
    if unit.kind != "notify":
        yield None
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        path = NOTIFY / f"notify.{unit.name}"
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        listener.bind(str(path))
        listener.setblocking(False)
        yield listener


async def _cancel(task: "asyncio.Task[None]") -> None:
    """Cancel a task and wait for its end: it may be starting a process, which ends with it."""
    task.cancel()
    await asyncio.wait([task])


async def _hears_ready(listener: socket.socket) -> None:
    while b"READY=1" not in await asyncio.get_running_loop().sock_recv(listener, 4096):
        pass
