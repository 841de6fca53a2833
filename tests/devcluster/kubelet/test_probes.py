"""Probes by HTTP: when a container has started, is ready, and is to be stopped."""

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from devcluster.kubelet.plan.pods import ContainerSpec, Pod
from devcluster.kubelet.plan.view import Container, Sandbox, State, View
from devcluster.kubelet.probes import Prober

_VIEW = View((Sandbox("s", 0, True, ("127.0.0.1",)),), (Container("id", "c", "s", 0, State.RUNNING),))


class Program:
    """A container's program: what it answers, and why it was given up."""

    def __init__(self) -> None:
        self.status = 503
        self.given_up: list[str] = []
        self.changed = asyncio.Event()

    async def answer(self, _request: web.Request) -> web.Response:
        return web.Response(status=self.status)

    async def give_up(self, _spec: ContainerSpec, _container: Container, why: str) -> None:
        self.given_up.append(why)
        self.changed.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(90):
            while not reached():
                await self.changed.wait()
                self.changed.clear()


@pytest.fixture
async def program() -> Program:
    return Program()


@pytest.fixture
async def port(program: Program) -> AsyncIterator[int]:
    """Serve the program on loopback."""
    application = web.Application()
    application.router.add_get("/ok", program.answer)
    async with TestServer(application) as server:
        assert server.port is not None
        yield server.port


def _pod(port: int, **probes: object) -> Pod:
    container = {"name": "c", "ports": [{"name": "web", "containerPort": port}], **probes}
    return msgspec.convert(
        {"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {"containers": [container]}}, Pod
    )


def _probe(**fields: object) -> dict[str, object]:
    return {"httpGet": {"path": "/ok", "port": "web"}, "periodSeconds": 0, **fields}


async def test_readiness_follows_the_answers(program: Program, port: int) -> None:
    """It is not ready until the first good answer, and again after as many bad ones as the probe allows."""
    pod = _pod(port, readinessProbe=_probe(failureThreshold=2))
    prober = Prober(program.changed.set, program.give_up)
    prober.follow(pod, _VIEW)
    assert prober.waiting(pod, _VIEW) == (frozenset(), frozenset({"id"}))
    program.status = 200
    await program.until(lambda: prober.waiting(pod, _VIEW) == (frozenset(), frozenset()))
    program.status = 503
    await program.until(lambda: prober.waiting(pod, _VIEW)[1] == {"id"})
    assert program.given_up == []
    await prober.end()


async def test_nothing_is_asked_before_the_start_and_a_container_that_does_not_live_is_given_up(
    program: Program, port: int
) -> None:
    """The startup probe comes first; the liveness probe that fails then stops the container, with the reason."""
    pod = _pod(port, startupProbe=_probe(failureThreshold=1000), livenessProbe=_probe(failureThreshold=1))
    prober = Prober(program.changed.set, program.give_up)
    prober.follow(pod, _VIEW)
    assert prober.waiting(pod, _VIEW) == (frozenset({"id"}), frozenset({"id"}))
    program.status = 200
    await program.until(lambda: prober.waiting(pod, _VIEW) == (frozenset(), frozenset()))
    assert program.given_up == []
    program.status = 500
    await program.until(lambda: bool(program.given_up))
    assert program.given_up[0] == "Liveness probe failed: HTTP probe failed with statuscode: 500"
    await prober.end()


async def test_a_container_that_ended_is_probed_no_more(program: Program, port: int) -> None:
    """A container without probes is never waited for."""
    pod = _pod(port, readinessProbe=_probe())
    prober = Prober(program.changed.set, program.give_up)
    prober.follow(pod, _VIEW)
    prober.follow(pod, View())
    assert prober.waiting(pod, View()) == (frozenset(), frozenset())
    assert prober.waiting(_pod(port), _VIEW) == (frozenset(), frozenset())
