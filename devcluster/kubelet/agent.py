"""One node's kubelet: follow its pods and its runtime, with a worker for each pod; keep the node's lease."""

import asyncio
from contextlib import suppress

import grpc
import structlog

from devcluster.kubelet.plan.node import Machine
from devcluster.kubelet.plan.pods import Pod
from devcluster.kubelet.retry import retrying
from devcluster.kubelet.steps import Edge
from devcluster.kubelet.volumes import VolumeError
from devcluster.kubelet.worker import Worker
from mooring.kube.failures import KubeError
from mooring.kube.watch import Changed, Decoder, Event, Removed, Synced, Unreadable, watch

_log = structlog.get_logger()
# How often the runtime is listed for changes, as by the real kubelet, and the lease is renewed, in seconds.
_RELIST_S = 1.0
# How often the runtime's state is asked for, by which the shim knows that a kubelet calls it.
_POLL_S = 5.0
_RENEW_S = 10.0
# How often volumes are brought up to date, in seconds; the real kubelet takes a minute or more.
_VOLUMES_S = 15.0
# A runtime that gives no answer for this long, in seconds, makes the node NotReady: maxWaitForContainerRuntime in
# pkg/kubelet/kubelet.go of Kubernetes.
_DOWN_S = 30.0


class Agent:
    """A node's workers, by pod uid."""

    def __init__(self, machine: Machine, edge: Edge) -> None:
        self._machine = machine
        self._edge = edge
        self._workers: dict[str, Worker] = {}
        # The pods of the API server; None is a pod that cannot be read: it exists, and is left as it is.
        self._pods: dict[str, Pod | None] = {}
        self._seen: dict[str, frozenset[tuple[str, int]]] = {}
        self._tasks = asyncio.TaskGroup()
        self._knows_all_pods = False

    async def run(self) -> None:
        """Register the node, then work until cancelled; the pods stay when the kubelet ends."""
        await retrying()(self._edge.api.register, self._machine, self._edge.clock())
        _log.info("node registered", node=self._machine.name)
        async with self._tasks:
            self._tasks.create_task(self._follow_pods())
            self._tasks.create_task(self._follow_runtime())
            self._tasks.create_task(self._poll_runtime())
            self._tasks.create_task(self._keep_lease())
            self._tasks.create_task(self._keep_volumes())

    async def _follow_pods(self) -> None:
        selected = {"fieldSelector": f"spec.nodeName={self._machine.name}"}
        async for event in watch(self._edge.api.client, "/api/v1/pods", Decoder(Pod), selected):
            self._take(event)

    def _take(self, event: Event[Pod]) -> None:
        match event:
            case Synced(entries):
                there = {entry.identity.uid for entry in entries}
                for uid in (self._workers.keys() | self._pods.keys()) - there:
                    self._forget(uid)
                for entry in entries:
                    self._take(entry)
                self._knows_all_pods = True
            case Changed(identity, pod):
                self._pods[identity.uid] = pod
                self._tend(identity.uid, f"{identity.namespace}/{identity.name}")
            case Removed(identity):
                self._forget(identity.uid)
            case Unreadable(identity, why):
                self._pods.setdefault(identity.uid, None)
                _log.warning("pod cannot be read", pod=f"{identity.namespace}/{identity.name}", reason=why)

    def _forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        if uid in self._workers:
            self._workers[uid].update(None)

    async def _follow_runtime(self) -> None:
        """Wake the workers of pods that changed in the runtime; sandboxes without a pod get a worker that ends them."""
        ready, answered_s = True, self._edge.clock()
        while True:
            try:
                self._compare(await self._edge.runtime.pods())
                answered_s = self._edge.clock()
            except grpc.RpcError as refused:
                _log.warning("runtime gives no answer", node=self._machine.name, reason=str(refused.details()))
            up = self._edge.clock() - answered_s < _DOWN_S
            if up != ready and await self._tell_ready(ready=up):
                ready = up
            await asyncio.sleep(_RELIST_S)

    async def _poll_runtime(self) -> None:
        while True:
            with suppress(grpc.RpcError):
                await self._edge.runtime.poll()
            await asyncio.sleep(_POLL_S)

    async def _tell_ready(self, *, ready: bool) -> bool:
        """Report whether the node can run pods; return whether that was written."""
        try:
            await self._edge.api.write_ready(self._machine.name, self._edge.clock(), ready=ready)
        except KubeError as lost:
            _log.warning("node's state not written", node=self._machine.name, reason=str(lost))
            return False
        return True

    def _compare(self, listed: dict[str, tuple[str, frozenset[tuple[str, int]]]]) -> None:
        for uid, (name, parts) in listed.items():
            unreadable = uid in self._pods and self._pods[uid] is None
            if uid not in self._workers and self._knows_all_pods and not unreadable:
                self._tend(uid, name)
            elif uid in self._workers and self._seen.get(uid) != parts:
                self._workers[uid].wake()
        for uid in self._seen.keys() - listed.keys():
            if uid in self._workers:
                self._workers[uid].wake()
        self._seen = {uid: parts for uid, (_, parts) in listed.items()}

    async def _keep_lease(self) -> None:
        while True:
            try:
                await self._edge.api.renew(self._machine, self._edge.clock())
            except KubeError as lost:
                _log.warning("lease not renewed", node=self._machine.name, reason=str(lost))
            await asyncio.sleep(_RENEW_S)

    async def _keep_volumes(self) -> None:
        """Make the pods' volumes again from time to time: config maps change, tokens expire."""
        while True:
            await asyncio.sleep(_VOLUMES_S)
            for pod in [pod for pod in self._pods.values() if pod is not None and pod.spec.volumes]:
                try:
                    await self._edge.volumes.make(pod)
                except (KubeError, VolumeError, OSError) as failed:
                    _log.warning("volumes not renewed", pod=pod.path, node=self._machine.name, reason=str(failed))

    def _tend(self, uid: str, name: str) -> None:
        """Give a pod's worker the API server's state; create the worker if there is none."""
        if uid not in self._workers:
            self._workers[uid] = Worker(uid, name, self._edge)
            self._tasks.create_task(self._work(uid, name, self._workers[uid]))
        self._workers[uid].update(self._pods.get(uid))

    async def _work(self, uid: str, name: str, worker: Worker) -> None:
        """Run a worker; one that breaks is dropped, and the pod's next change or listing gives it a new one."""
        try:
            await worker.run()
        except Exception:  # noqa: BLE001 - the program's one broad except: a pod that breaks its worker must not stop the others
            _log.exception("worker broke", pod=name, uid=uid, node=self._machine.name)
        finally:
            if self._workers.get(uid) is worker:
                del self._workers[uid]
