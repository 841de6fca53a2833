"""``python -m devcluster.controllers``: stand-ins for kube-controller-manager and kube-scheduler, until SIGTERM.

Level-triggered: after any change everything is listed again, what is missing is decided (purely), and written. Then
again, until nothing is missing; so no state is kept and no write is made twice.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import structlog

from devcluster import program
from devcluster.controllers.cluster_upkeep import plan_accounts, plan_bindings, plan_removals, plan_taints
from devcluster.controllers.daemonsets import plan_daemonsets
from devcluster.controllers.deployments import plan_deployments, plan_replicasets
from devcluster.controllers.writes import PATHS, Change, Create, Object, Remove, View, Write
from devcluster.kubelet.plan.status import timestamp
from devcluster.kubelet.retry import Unfinished, retrying
from mooring.kube.access import load_access
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import Conflict, KubeError, NotFound
from mooring.kube.watch import Decoder, watch
from mooring.program.config import option

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Options:
    """Keep Deployments and DaemonSets, bind pods of default-scheduler, give namespaces their accounts."""

    kubeconfig: str = option("", "kubeconfig file; the default order of kubectl where empty")
    root_ca: str = option("", "file of the API server's authority, published to every namespace")


class Loop:
    """Lists, decides and writes."""

    def __init__(self, client: Client, root_ca: str) -> None:
        self._client = client
        self._root_ca = root_ca
        self._changed = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for path in PATHS.values():
                tasks.create_task(self._follow(path))
            while True:
                await self._changed.wait()
                self._changed.clear()
                await retrying()(self._round)

    async def _follow(self, path: str) -> None:
        async for _ in watch(self._client, path, Decoder(msgspec.Raw)):
            self._changed.set()

    async def _round(self) -> None:
        """Write what is missing; the resulting events lead to another round. Raise Unfinished."""
        refusals = 0
        listed = {kind: await self._list(kind) for kind in PATHS}
        for write in self._missing(View(listed, timestamp(time.time()))):
            try:
                await self._send(write)
            except (Conflict, NotFound) as outrun:
                _log.info("somebody else was faster", path=write.path, reason=str(outrun))
            except KubeError as refused:
                _log.warning("write refused", path=write.path, reason=str(refused))
                refusals += 1
        if refusals:
            raise Unfinished

    def _missing(self, view: View) -> Iterator[Write]:
        yield from plan_accounts(view, self._root_ca)
        for plan in (plan_removals, plan_taints, plan_deployments, plan_replicasets, plan_daemonsets, plan_bindings):
            yield from plan(view)

    async def _list(self, kind: str) -> list[Object]:
        answer = msgspec.json.decode(await self._client.request("GET", PATHS[kind]))
        singular = str(answer["kind"]).removesuffix("List")
        # A list leaves out the fields that all its items share.
        return [{"apiVersion": answer["apiVersion"], "kind": singular, **item} for item in answer["items"] or ()]

    async def _send(self, write: Write) -> None:
        match write:
            case Create(path, body):
                await self._client.request("POST", path, msgspec.json.encode(body))
            case Change(path, body):
                await self._client.request("PATCH", path, msgspec.json.encode(body), content_type=MERGE_PATCH)
            case Remove(path, uid):
                options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
                await self._client.request("DELETE", path, msgspec.json.encode(options))


async def run(options: Options) -> None:
    """Work until SIGTERM or SIGINT."""
    access = await asyncio.to_thread(load_access, options.kubeconfig or None)
    with open(options.root_ca, encoding="ascii") as file:  # noqa: PTH123 - once, before anything else
        root_ca = file.read()
    async with Client(access) as client:
        work = asyncio.create_task(Loop(client, root_ca).run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        await asyncio.wait([work])
        if not work.cancelled():
            work.result()


if __name__ == "__main__":
    sys.exit(program.main(Options, "controllers", run, os.environ))
