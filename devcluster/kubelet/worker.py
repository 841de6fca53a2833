"""Look after one pod: plan, take the steps, write its status; again after every change, until it is gone.

A deletion cuts a start short, as in the real kubelet: the runtime then sees its caller disconnect in the middle of
RunPodSandbox. A failure is reported by an event and tried again.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import structlog

from devcluster.kubelet import steps
from devcluster.kubelet.api import Event
from devcluster.kubelet.plan import status as pod_status
from devcluster.kubelet.plan.next_steps import DeletePod, Launch, MakeSandbox, Step, StopContainer, plan
from devcluster.kubelet.plan.pods import ContainerSpec, Pod
from devcluster.kubelet.plan.status import Conditions, Document, Failure, StatusContext
from devcluster.kubelet.plan.view import Container, View
from devcluster.kubelet.probes import Prober
from devcluster.kubelet.retry import Unfinished, retrying
from devcluster.kubelet.steps import Edge, StepFailed
from mooring.kube.failures import KubeError

_log = structlog.get_logger()
# Whether the pod is gone, and when to check again at the latest (seconds since the epoch).
_Outcome = tuple[bool, float | None]


class Worker:
    """One pod's worker; `run` ends when the pod is gone from the API server and from the runtime."""

    def __init__(self, uid: str, name: str, edge: Edge) -> None:
        self._uid = uid
        self._edge = edge
        self._log = _log.bind(pod=name, uid=uid, node=edge.api.node)
        self._pod: Pod | None = None
        self._changed = asyncio.Event()
        self._woken = asyncio.Event()
        self._starts: set[asyncio.Task[None]] = set()
        self._failures: dict[str, Failure] = {}
        self._told: dict[Event, int] = {}
        self._start_s = edge.clock()
        self._conditions: Conditions = {}
        self._written: Document = {}
        self._prober = Prober(self.wake, self._give_up)

    def update(self, pod: Pod | None) -> None:
        """Take the pod as the API server has it now, None if it is gone; its status is our own write, not a change."""
        before, self._pod = self._pod, pod
        if pod is None or before is None or (pod.metadata, pod.spec) != (before.metadata, before.spec):
            self._changed.set()
            self._woken.set()
        if pod is None or pod.is_deleted:
            for start in self._starts:
                start.cancel()

    def wake(self) -> None:
        """Check again: something changed in the runtime."""
        self._woken.set()

    async def run(self) -> None:
        try:
            await self._tend()
        finally:
            await self._prober.end()
        self._edge.volumes.remove(self._uid)
        self._edge.forget_logs(self._uid)

    async def _tend(self) -> None:
        while True:
            outcome: _Outcome = await retrying(self._pause)(self._round)
            gone, wake_s = outcome
            if gone:
                return
            await _wait(self._woken, None if wake_s is None else max(0.0, wake_s - self._edge.clock()))

    async def _pause(self, seconds: float) -> None:
        """Wait before the next attempt; a change of the pod itself may fix what failed, so it ends the wait."""
        await _wait(self._changed, seconds)

    async def _round(self) -> _Outcome:
        """Take steps until none is left. Raise Unfinished."""
        while True:
            self._changed.clear()
            self._woken.clear()
            pod, view = self._pod, await self._edge.runtime.view(self._uid)
            chosen = plan(pod, view, self._edge.clock())
            if pod is not None:
                self._prober.follow(pod, view)
            written = await self._write_status(view)
            if self._changed.is_set():
                continue
            if not chosen.steps:
                if not written:
                    raise Unfinished
                return self._pod is None and view.is_empty(), chosen.wake_s
            done = await asyncio.gather(*(self._take(step, pod, view) for step in chosen.steps))
            if not all(done):
                await self._write_status(await self._edge.runtime.view(self._uid))
                raise Unfinished

    async def _take(self, step: Step, pod: Pod | None, view: View) -> bool:
        """Take one step; return whether it succeeded, or was cut short because it is no longer wanted."""
        try:
            if pod is not None and isinstance(step, MakeSandbox | Launch):
                await self._interruptible(steps.start(step, pod, view, self._edge, self._tell))
            else:
                await steps.end(step, pod, self._edge, self._tell)
        except StepFailed as failed:
            self._log.warning("step failed", reason=failed.event.message)
            if failed.failure is not None:
                self._failures[failed.container] = failed.failure
            await self._tell(failed.event)
            return False
        except KubeError as lost:
            self._log.warning("API server gives no answer", reason=str(lost))
            return False
        if isinstance(step, Launch):
            self._failures.pop(step.container, None)
        if isinstance(step, DeletePod) and self._pod is pod:
            self._pod = None
        return True

    async def _interruptible(self, start: Coroutine[Any, Any, None]) -> None:
        """Do something that a deletion cuts short; that is not a failure."""
        task = asyncio.create_task(start)
        self._starts.add(task)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            self._starts.discard(task)
        if not task.cancelled():
            task.result()

    async def _write_status(self, view: View) -> bool:
        """Write the pod's status if it changed; return whether it is as it should be.

        A pod being deleted whose sandboxes are removed keeps its last one: there is nothing to read any more.
        """
        pod = self._pod
        if pod is None or (pod.is_deleted and view.is_empty()):
            return True
        waiting = self._prober.waiting(pod, view)
        now = StatusContext(self._edge.clock(), self._start_s, self._edge.host_ip, self._conditions, *waiting)
        document = pod_status.status(pod, view, self._failures, now)
        if document == self._written:
            return True
        try:
            await self._edge.api.write_status(pod, document)
        except KubeError as lost:
            self._log.warning("status not written", reason=str(lost))
            return False
        self._written = document
        self._conditions = pod_status.since(document)
        return True

    async def _give_up(self, spec: ContainerSpec, container: Container, why: str) -> None:
        """Stop a container whose probe failed too often; its plan starts it again."""
        await self._tell(Event("Warning", "Unhealthy", why))
        with contextlib.suppress(StepFailed):
            await steps.end(StopContainer(container.id, spec.name, 0), self._pod, self._edge, self._tell)

    async def _tell(self, event: Event) -> None:
        if self._pod is not None:
            self._told[event] = self._told.get(event, 0) + 1
            await self._edge.api.tell(self._pod, event, self._told[event], self._edge.clock())


async def _wait(event: asyncio.Event, seconds: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
