"""Probe a pod's containers: startup, liveness and readiness by HTTP.

A container without probes is started and ready as soon as it runs. One that fails its startup or liveness probe is
stopped; its plan launches it again. Other probes than httpGet are not made, and count as successful.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp

from devcluster.kubelet.plan.pods import ContainerSpec, HttpGet, Pod, Probe
from devcluster.kubelet.plan.view import Container, State, View

Ended = Callable[[ContainerSpec, Container, str], Awaitable[None]]


@dataclass(slots=True)
class Prober:
    """The probes of one pod: ``wake`` is called when an answer changes, ``give_up`` for a container to be stopped."""

    wake: Callable[[], None]
    give_up: Ended
    _tasks: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    _started: set[str] = field(default_factory=set)
    _ready: set[str] = field(default_factory=set)

    def follow(self, pod: Pod, view: View) -> None:
        """Probe the containers that run now, and no other."""
        running = {one.id: one for one in view.containers if one.state is State.RUNNING}
        for gone in self._tasks.keys() - running.keys():
            self._tasks.pop(gone).cancel()
            self._started.discard(gone)
            self._ready.discard(gone)
        specs = {spec.name: spec for spec in pod.spec.containers}
        address = _address(view) if not pod.spec.host_network else "127.0.0.1"
        for key in running.keys() - self._tasks.keys():
            spec = specs.get(running[key].name)
            if spec is not None and spec.probes:
                self._tasks[key] = asyncio.create_task(self._probe(spec, running[key], address))

    def waiting(self, pod: Pod, view: View) -> tuple[frozenset[str], frozenset[str]]:
        """Return the ids of running containers that have not started, and of those that are not ready."""
        probed = {spec.name: spec for spec in pod.spec.containers if spec.probes}
        asked = {one.id: probed[one.name] for one in view.containers if one.name in probed}
        not_started = {key for key, spec in asked.items() if spec.startup_probe and key not in self._started}
        not_ready = {key for key, spec in asked.items() if spec.readiness_probe and key not in self._ready}
        return frozenset(not_started), frozenset(not_started | not_ready)

    async def end(self) -> None:
        """End all probes, and their connections."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _probe(self, spec: ContainerSpec, container: Container, address: str) -> None:
        async with aiohttp.ClientSession() as session:
            ask = _HttpProbe(session, spec, address)
            if spec.startup_probe is not None:
                await self._until(ask, spec.startup_probe, spec, container, "Startup", wanted=True)
                self._started.add(container.id)
                self.wake()
            async with asyncio.TaskGroup() as both:
                if spec.liveness_probe is not None:
                    both.create_task(self._until(ask, spec.liveness_probe, spec, container, "Liveness", wanted=False))
                if spec.readiness_probe is not None:
                    both.create_task(self._readiness(ask, spec.readiness_probe, container))

    async def _until(
        self, ask: "_HttpProbe", probe: Probe, spec: ContainerSpec, container: Container, kind: str, *, wanted: bool
    ) -> None:
        """Probe until success if that is ``wanted``, else for ever; give up after too many failures."""
        failures = 0
        await asyncio.sleep(probe.initial_delay_seconds)
        while True:
            why = await ask(probe)
            if not why and wanted:
                return
            failures = failures + 1 if why else 0
            if failures >= probe.failure_threshold:
                await self.give_up(spec, container, f"{kind} probe failed: {why}")
                failures = 0
            await asyncio.sleep(probe.period_seconds)

    async def _readiness(self, ask: "_HttpProbe", probe: Probe, container: Container) -> None:
        failures = 0
        await asyncio.sleep(probe.initial_delay_seconds)
        while True:
            why = await ask(probe)
            failures = failures + 1 if why else 0
            was_ready = container.id in self._ready
            if not why and not was_ready:
                self._ready.add(container.id)
                self.wake()
            elif failures >= probe.failure_threshold and was_ready:
                self._ready.discard(container.id)
                self.wake()
            await asyncio.sleep(probe.period_seconds)


@dataclass(frozen=True, slots=True)
class _HttpProbe:
    """One container's HTTP: call it with a probe; return why it failed, or nothing."""

    session: aiohttp.ClientSession
    spec: ContainerSpec
    address: str

    async def __call__(self, probe: Probe) -> str:
        if probe.http_get is None:
            return ""
        url = f"http://{self.address}:{self._port(probe.http_get)}{probe.http_get.path}"
        limit = aiohttp.ClientTimeout(total=probe.timeout_seconds)
        try:
            async with self.session.get(url, timeout=limit) as answer:
                return "" if answer.status < 400 else f"HTTP probe failed with statuscode: {answer.status}"
        except (aiohttp.ClientError, TimeoutError) as failed:
            return f'Get "{url}": {str(failed) or "timed out"}'

    def _port(self, asked: HttpGet) -> int:
        named = {port.name: port.container_port for port in self.spec.ports}
        return asked.port if isinstance(asked.port, int) else named[asked.port]


def _address(view: View) -> str:
    sandbox = view.ready_sandbox()
    return sandbox.ips[0] if sandbox is not None and sandbox.ips else "127.0.0.1"
