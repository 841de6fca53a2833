"""`mooring-node fleet`: read the options, serve /readyz, and run the agent until SIGTERM."""

import asyncio
import signal
from dataclasses import dataclass
from pathlib import Path
from platform import node as host_name
from random import Random

import structlog
from aiohttp import web

from cli.node.errors import NodeError
from cli.node.fleet.agent import Agent, State, Task
from cli.node.fleet.enter import HostProcess
from cli.node.fleet.host import FleetNode
from cli.node.fleet.lease import LeaseStore
from cli.node.fleet.nodes import KubeNodes
from cli.node.fleet.runtime import Runtime
from cli.node.plan.turns import MOST_AT_ONCE
from mooring.http.application import listen
from mooring.kube.access import AccessError, load_access
from mooring.kube.client import Client
from mooring.program.config import ConfigError, host_and_port, option
from mooring.program.log import set_up

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Options:
    """Install this node from its pod, in turn with the other nodes; then check it, and install what has changed.

    At its end nothing is removed. With --mode remove it removes Mooring from the node, in turn as well.
    """

    node_name: str = option("", "name of this node's Node object; if empty: the host name in lower case")
    mode: str = option("install", "install: install or upgrade the node; remove: remove Mooring, once no pod has VFs")
    at_once: int = option(10, "how many nodes are changed at once, after one has succeeded alone; from 1 to 100")
    install_flags: str = option("", "further flags of mooring-node install, as a shell would split them")
    check_every: float = option(300.0, "seconds between two checks of the node")
    namespace: str = option("mooring-node", "namespace of the Lease")
    lease: str = option("mooring-node-installer", "name of the Lease that keeps the turns")
    kubeconfig: str = option("", "kubeconfig file; if empty: KUBECONFIG, then the pod's service account")
    addr: str = option("127.0.0.1:54008", "host:port of /healthz and /readyz; if empty: none")
    runtime: Path = option(Path("/mooring"), "folder of the runtime that is installed")
    root: Path = option(Path("/host"), "where the host's root folder is mounted")
    settings: Path = option(
        Path("/etc/mooring-node"), "folder with cni.json, or cni.<node>.json for one node; optional"
    )
    process: int = option(1, "id of the process whose namespaces are the host's")

    @property
    def node(self) -> str:
        return self.node_name or host_name().lower()


class Readiness:
    """What /readyz answers: ready on a node that is as desired, and whose check finds nothing at all."""

    def __init__(self) -> None:
        self._state: State = "waiting"
        self._text = "has not begun"

    def reported(self, state: State, text: str) -> None:
        self._state, self._text = state, text

    async def readyz(self, _: web.Request) -> web.Response:
        ready = self._state == "done" and not self._text
        return web.json_response({"state": self._state, "reason": self._text}, status=200 if ready else 503)

    async def healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")


def main(program: str, options: Options) -> int:
    """Run until SIGTERM; return the exit status. Raise ConfigError for options that cannot be."""
    if options.mode not in ("install", "remove"):
        raise ConfigError(f"flag --mode of {program}: {options.mode!r} is neither install nor remove")
    if not 1 <= options.at_once <= MOST_AT_ONCE:
        raise ConfigError(f"flag --at-once of {program}: {options.at_once!r} is not from 1 to {MOST_AT_ONCE}")
    if options.check_every <= 0:
        raise ConfigError(f"flag --check-every of {program}: {options.check_every!r} is not above 0")
    host_and_port(options.addr or ":0")
    set_up(program)
    asyncio.run(_serve(options))
    return 0


async def _serve(options: Options) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runtime, readiness = Runtime.at(options.runtime), Readiness()
    node = FleetNode(
        name=options.node,
        root=options.root,
        runtime=runtime,
        settings=options.settings,
        install_flags=options.install_flags,
        removes=options.mode == "remove",
        process=HostProcess(options.process),
        reported=readiness.reported,
    )
    task = Task(options.node, options.at_once, options.check_every)
    try:
        access = await asyncio.to_thread(load_access, options.kubeconfig or None)
    except AccessError as wrong:
        raise NodeError(str(wrong)) from wrong
    routes = [web.get("/readyz", readiness.readyz), web.get("/healthz", readiness.healthz)]
    async with Client(access) as client, listen(options.addr, routes), asyncio.TaskGroup() as group:
        store = LeaseStore(client, options.namespace, options.lease, options.node)
        agent = Agent(task, store, KubeNodes(client), node, Random())
        works = group.create_task(agent.run())
        _log.info("agent starts", node=options.node, mode=options.mode, release=runtime.release)
        await stop.wait()
        works.cancel()
