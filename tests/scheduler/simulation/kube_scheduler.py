"""A stock kube-scheduler, small: it decides about its own pods, whose VFs Mooring gives as its extender.

By itself it knows cpus and ready nodes, from a cache that is late. It takes one pod at a time, filters, lets the
extender filter and rank, assumes its choice, and lets the extender bind beside the next decision. A bind that is
refused, lost or not answered in time it forgets, and tries again after a while. If only cpus are missing it preempts.
"""

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from devcluster.apiserver.status import ApiError
from tests.scheduler.simulation.api import Json
from tests.scheduler.simulation.clock import PROCESS, VirtualLoop
from tests.scheduler.simulation.cluster import Cluster, PodState
from tests.scheduler.simulation.network import CLIENT
from tests.scheduler.simulation.oracle import has_cpu, is_ready

_SERVICE = "http://10.0.0.2:8888"
# As kube-scheduler's httpTimeout and backoff, in seconds.
_TIMEOUT = aiohttp.ClientTimeout(total=5.0)
_BACKOFF_S = (1.0, 10.0)
# How long after a decision the next comes, in seconds, and one in how many finds the cache up to date.
_PAUSE_S, _FRESH = (0.02, 0.6), 3
# One in so many binds is requested twice at once, and one in so many filters sends whole nodes.
_TWICE, _WHOLE = 8, 4


class _Unanswered(Exception):  # noqa: N818 - an outcome
    """There is no answer: no leader, or a request or its answer is lost."""


@dataclass
class KubeScheduler:
    """One process; ``broken`` takes wrong answers. ``met`` counts the cases that occurred."""

    loop: VirtualLoop
    cluster: Cluster
    broken: list[str]
    source: random.Random
    met: Counter[str] = field(default_factory=Counter)
    _pods: dict[str, PodState] = field(default_factory=dict)
    _nodes: dict[str, Json] = field(default_factory=dict)
    _assumed: dict[str, str] = field(default_factory=dict)
    _not_before: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        context = contextvars.copy_context()
        context.run(PROCESS.set, CLIENT)
        self.task = self.loop.create_task(self._run(), context=context)

    async def _run(self) -> None:
        async with (
            aiohttp.ClientSession(_SERVICE, timeout=_TIMEOUT) as self._session,
            asyncio.TaskGroup() as self._binding,
        ):
            while True:
                await asyncio.sleep(self.source.uniform(*_PAUSE_S))
                if self.source.randrange(_FRESH) == 0:
                    self._look()
                if (pod := self._next()) is not None:
                    await self._try(pod)

    def _look(self) -> None:
        """Bring the cache up to date; what it shows as bound is no longer only assumed."""
        self._pods = {pod.uid: pod for pod in self.cluster.pods()}
        self._nodes = self.cluster.nodes()
        waiting = {uid for uid, pod in self._pods.items() if not pod.node}
        self._assumed = {uid: node for uid, node in self._assumed.items() if uid in waiting}

    def _next(self) -> PodState | None:
        """Return the most important pod that waits, of those that are not backing off."""
        now = self.loop.time()
        waiting = [pod for uid, pod in self._pods.items() if not (pod.is_ours or pod.node) and uid not in self._assumed]
        due = [pod for pod in waiting if not pod.is_going and self._not_before.get(pod.uid, 0.0) <= now]
        return max(due, key=lambda pod: pod.priority, default=None)

    async def _try(self, pod: PodState) -> None:
        self._not_before[pod.uid] = self.loop.time() + self.source.uniform(*_BACKOFF_S)
        ready = [name for name, node in self._nodes.items() if is_ready(node)]
        fitting = [name for name in ready if has_cpu(pod, self._on(name))]
        try:
            refused = await self._filter(pod, fitting) if fitting else {}
            if left := [name for name in fitting if name not in refused]:
                self._begin_to_bind(pod, await self._best(pod, left), left)
                return
            self._tell(pod, refused)
            await self._preempt(pod, ready)
        except _Unanswered:
            return

    def _on(self, node: str) -> list[PodState]:
        """Return the pods that are on a node, or assumed to be."""
        places = {uid: pod.node for uid, pod in self._pods.items() if pod.is_live} | self._assumed
        return [pod for uid, pod in self._pods.items() if places.get(uid) == node]

    async def _filter(self, pod: PodState, nodes: list[str]) -> Mapping[str, str]:
        """Return the nodes that the extender refuses, and why."""
        whole = self.source.randrange(_WHOLE) == 0
        sent: Json = {"Nodes": {"items": [self._nodes[name] for name in nodes]}} if whole else {"NodeNames": nodes}
        answer = await self._ask("filter", {"Pod": pod.document, **sent})
        items = (answer["Nodes"] or {}).get("items", ())
        passing = [item["metadata"]["name"] for item in items] if whole else answer["NodeNames"]
        refused: dict[str, str] = answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]
        if answer["Error"] or {*passing, *refused} != set(nodes) or not all(refused.values()):
            self.broken.append(f"filter of {nodes} for {pod.name} answered {answer}")
        return refused

    async def _best(self, pod: PodState, nodes: list[str]) -> str:
        """Return a node: the extender's scores count, and so do the nodes that it does not know."""
        scores = await self._ask("prioritize", {"Pod": pod.document, "NodeNames": nodes})
        best: str = max((one["Score"] + self.source.uniform(0, 5), one["Host"]) for one in scores)[1]
        return best

    def _begin_to_bind(self, pod: PodState, node: str, left: list[str]) -> None:
        """Start a bind; now and then an earlier leader asks at once or late too, and may choose another node."""
        self._assumed[pod.uid] = node
        self._binding.create_task(self._bind(pod, node))
        if self.source.randrange(_TWICE) == 0:
            late_s = self.source.choice((0.0, self.source.uniform(0, 2)))
            self._binding.create_task(self._bind(pod, self.source.choice(left), late_s))

    async def _bind(self, pod: PodState, node: str, late_s: float = 0.0) -> None:
        """Let the extender bind; a bind that failed, or may have, is decided again."""
        await asyncio.sleep(late_s)
        asked = {"PodName": pod.name, "PodNamespace": "default", "PodUID": pod.uid, "Node": node}
        try:
            error = (await self._ask("bind", asked))["Error"]
        except _Unanswered as lost:
            error = str(lost)
        self.met["not bound" if error else "bound"] += 1
        if error:
            self._assumed.pop(pod.uid, None)
        elif (bound := self.cluster.pod(pod.uid)) is not None and bound.node != node:
            self.broken.append(f"{pod.name} was told to be bound to {node}, and is on {bound.node!r}")

    async def _preempt(self, pod: PodState, nodes: Iterable[str]) -> None:
        """Preempt less important pods where there are too few cpus, and those that the extender adds."""
        chosen = {node: victims for node in nodes if (victims := self._victims(pod, node))}
        if not chosen:
            return
        sent = {node: {"Pods": [{"UID": one.uid} for one in victims]} for node, victims in chosen.items()}
        answer = await self._ask("preempt", {"Pod": pod.document, "NodeNameToMetaVictims": sent})
        told_to_go = {
            node: {victim["UID"] for victim in victims["Pods"]}
            for node, victims in answer["NodeNameToMetaVictims"].items()
        }
        if told_to_go:
            node = min(sorted(told_to_go), key=lambda name: len(told_to_go[name]))
            known = [one for one in self._on(node) if one.uid in told_to_go[node]]
            # If one is not known yet, it tries again later.
            if len(known) == len(told_to_go[node]):
                self._send_away(pod, known, node)

    def _victims(self, pod: PodState, node: str) -> list[PodState]:
        """Return the less important pods without which the cpus suffice, empty if there are none such."""
        there, gone = self._on(node), list[PodState]()
        for victim in sorted(there, key=lambda one: one.priority):
            if has_cpu(pod, there):
                return gone
            if victim.priority < pod.priority and victim.uid not in self._assumed:
                there.remove(victim)
                gone.append(victim)
        return gone if has_cpu(pod, there) else []

    def _send_away(self, pod: PodState, victims: Iterable[PodState], node: str) -> None:
        self.met["preempted"] += 1
        for victim in victims:
            if victim.priority >= pod.priority:
                self.broken.append(f"{victim.name} should go for {pod.name} on {node}, and is not below it")
            with suppress(ApiError):
                self.cluster.delete_pod(victim.name)

    def _tell(self, pod: PodState, refused: Mapping[str, str]) -> None:
        """Report to the pod's owner why it waits, if that is new."""
        message = f"0 nodes are available: {sorted(set(refused.values())) or 'Insufficient cpu'}"
        if message != pod.message:
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            with suppress(ApiError):
                self.cluster.patch_pod(pod.name, {"status": {"conditions": [condition]}}, "/status")

    async def _ask(self, verb: str, body: Json) -> Any:
        """Ask the process that the Service leads to; raise `_Unanswered`."""
        try:
            async with self._session.post(f"/scheduler/{verb}", json=body) as answer:
                if answer.status == 200:
                    return await answer.json()
                why = f"{verb}: {answer.status} {await answer.text()}"
        except (aiohttp.ClientError, TimeoutError) as lost:
            self.met["lost"] += 1
            raise _Unanswered(f"{verb}: {lost!r}") from lost
        self.met["stood by"] += 1
        if answer.status != 503:
            self.broken.append(why)
        raise _Unanswered(why)
