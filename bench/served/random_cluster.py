"""A random cluster on a real API server, where pod after pod is tried and everything is restored after each.

No kubelet and no controller runs: pods are bound and deleted, and that is all that happens to them.
"""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Literal

import msgspec

from bench.loads import random_pods
from bench.loads.scheduler_load import Json
from bench.served import served_cluster
from bench.served.served_cluster import send
from mooring.kube.client import Client
from mooring.kube.failures import Conflict, NotFound

_CORE, _STORAGE = "/api/v1", "/api/v1/persistentvolumes"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_POLL_S, _LONGEST_S = 0.03, 60.0
# In this time a scheduler has seen what was written: it is no proof, and what differs is tried again after much longer.
_SEEN_S, _SEEN_AGAIN_S = 0.15, 2.0
# A pod in the middle of a resize in place still has so many thousandths of a cpu.
_ALLOCATED = 3000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a scheduler made of a pod: the node and whose pods had to go, or the reasons why it waits."""

    verdict: Literal["bound", "unschedulable", "none"]
    node: str = ""
    victims: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        gone = f" for {', '.join(self.victims)}" if self.victims else ""
        return f"{self.verdict} {self.node}{gone}{'; '.join(self.reasons)}"


class RandomCluster:
    """Nodes with running pods, which are put back where they were after each try."""

    def __init__(self, client: Client, random: Random) -> None:
        self._client, self._random, self._tried = client, random, 0
        self._namespace = ""
        # By namespace and name.
        self._running: dict[tuple[str, str], Json] = {}
        # Host ports of nodes, and names of claims.
        self._taken: set[object] = set()

    async def create_classes(self) -> None:
        for name, (value, preempts) in random_pods.CLASSES.items():
            policy = {} if preempts else {"preemptionPolicy": "Never"}
            try:
                await send(self._client, "POST", _CLASSES, {"metadata": {"name": name}, "value": value} | policy)
            except Conflict:
                continue

    async def renew(self, name: str, node_count: int) -> None:
        """Remove the nodes and pods of before, and make others; ``name`` is that of their namespace."""
        for key in tuple(self._running):
            await self._delete(*key)
        await self._client.request("DELETE", f"{_CORE}/nodes")
        self._running.clear()
        self._taken.clear()
        self._namespace, other = name, f"{name}-other"
        nodes = [random_pods.node(self._random, number) for number in range(node_count)]
        await served_cluster.add_nodes(self._client, nodes)
        for namespace in (name, other):
            await send(self._client, "POST", f"{_CORE}/namespaces", {"metadata": {"name": namespace}})
            await self._add_claims(namespace)
        for number in range(self._random.randint(0, 2)):
            await self._add_budget(random_pods.budget(self._random, f"b{number}"))
        for number in range(self._random.randint(node_count, 4 * node_count)):
            await self._add_running(number, self._random.choice((name, name, name, other)), node_count)
        if self._random.random() < 0.3:
            for key in self._random.sample(sorted(self._running), min(2, len(self._running))):
                await self._show_resize(*key)
        await asyncio.sleep(2 * _SEEN_S)

    async def _add_claims(self, namespace: str) -> None:
        for claim in random_pods.CLAIMS:
            volume = f"{namespace}-{claim}"
            await send(self._client, "POST", _STORAGE, random_pods.volume(volume, namespace, claim))
            path = f"{_CORE}/namespaces/{namespace}/persistentvolumeclaims"
            await send(self._client, "POST", path, random_pods.claim(claim, volume))

    async def _add_budget(self, budget: Json) -> None:
        path = f"/apis/policy/v1/namespaces/{self._namespace}/poddisruptionbudgets"
        await send(self._client, "POST", path, budget)
        await send(self._client, "PATCH", f"{path}/{budget['metadata']['name']}/status", {"status": budget["status"]})

    async def _add_running(self, number: int, namespace: str, node_count: int) -> None:
        pod = random_pods.pod(self._random, f"old{number}", random_pods.RUNNING)
        pod["spec"] |= {"nodeName": f"n{self._random.randrange(node_count)}", "schedulerName": "none"}
        pod["status"] = {"phase": "Running", "startTime": f"2026-01-01T00:00:{number:02}Z"}
        self._drop_taken(pod["spec"])
        await self._create(namespace, pod)
        self._running[namespace, pod["metadata"]["name"]] = pod

    def _drop_taken(self, spec: Json) -> None:
        """Drop a host port or a claim for one pod that another pod has.

        No scheduler lets two pods have one, and kube-scheduler takes it for free when the first of them leaves. For
        claims it compares names alone: one of another namespace's pod counts, too.
        """
        container = spec["containers"][0]
        ports = {(spec["nodeName"], one["hostPort"], one["protocol"]) for one in container.get("ports", ())}
        claims = {one["persistentVolumeClaim"]["claimName"] for one in spec.get("volumes", ())}
        claims &= {random_pods.ONE_POD_CLAIM}
        if ports & self._taken:
            del container["ports"]
        if claims & self._taken:
            del spec["volumes"]
        self._taken |= ports | claims

    async def _create(self, namespace: str, pod: Json) -> None:
        path = f"{_CORE}/namespaces/{namespace}/pods"
        await send(self._client, "POST", path, pod)
        if "status" in pod:
            await send(self._client, "PATCH", f"{path}/{pod['metadata']['name']}/status", {"status": pod["status"]})

    async def _show_resize(self, namespace: str, name: str) -> None:
        """Show a running pod in the middle of a resize in place, some of them infeasible."""
        allocated = {"cpu": f"{_ALLOCATED}m"}
        container = {"name": "c", "image": "pause", "imageID": "pause", "ready": True, "restartCount": 0}
        container |= {"allocatedResources": allocated, "resources": {"requests": allocated}}
        status: Json = {"containerStatuses": [container]}
        if self._random.random() < 0.3:
            status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
        # A victim that is created again is in the middle of its resize again.
        self._running[namespace, name]["status"] |= status
        path = f"{_CORE}/namespaces/{namespace}/pods/{name}/status"
        await send(self._client, "PATCH", path, {"status": status})

    async def attempt(self, pod: Json, scheduler: str, only: str = "", *, again: bool = False) -> Outcome:
        """Let a scheduler decide about a copy of a pod, which may go to node ``only``, empty for all; undo it all."""
        self._tried += 1
        twin = deepcopy(pod)
        name = twin["metadata"]["name"] = f"{pod['metadata']['name']}-{self._tried}"
        twin["spec"]["schedulerName"] = scheduler
        if only:
            resources, amount = twin["spec"]["containers"][0]["resources"], {f"{random_pods.ONLY}{only}": "1"}
            twin["spec"]["containers"][0]["resources"] = {
                "requests": resources["requests"] | amount,
                "limits": resources.get("limits", {}) | amount,
            }
        await asyncio.sleep(_SEEN_AGAIN_S if again else _SEEN_S)
        await self._create(self._namespace, twin)
        outcome = await self._outcome(name)
        victims = await self._missing()
        await self._delete(self._namespace, name)
        for key in victims:
            await self._create(key[0], self._running[key])
        names = tuple(sorted("/".join(key) for key in victims))
        return Outcome(outcome.verdict, outcome.node, names, outcome.reasons)

    async def _outcome(self, name: str) -> Outcome:
        deadline = time.monotonic() + _LONGEST_S
        path = f"{_CORE}/namespaces/{self._namespace}/pods/{name}"
        while time.monotonic() < deadline:
            pod = msgspec.json.decode(await self._client.request("GET", path))
            if node := pod["spec"].get("nodeName"):
                return Outcome("bound", node)
            conditions = {one["type"]: one for one in pod["status"].get("conditions", ())}
            scheduled = conditions.get("PodScheduled", {})
            if scheduled.get("reason") == "Unschedulable" and not pod["status"].get("nominatedNodeName"):
                return Outcome("unschedulable", reasons=reasons_of(scheduled.get("message", "")))
            await asyncio.sleep(_POLL_S)
        return Outcome("none")

    async def _missing(self) -> list[tuple[str, str]]:
        """Return which running pods are gone."""
        here = {
            (namespace, pod["metadata"]["name"])
            for namespace in {namespace for namespace, _ in self._running}
            for pod in await served_cluster.items(self._client, f"{_CORE}/namespaces/{namespace}/pods")
        }
        return [key for key in self._running if key not in here]

    async def _delete(self, namespace: str, name: str) -> None:
        path = f"{_CORE}/namespaces/{namespace}/pods/{name}"
        try:
            await self._client.request("DELETE", path, params={"gracePeriodSeconds": "0"})
        except NotFound:
            return

    def priorities(self, victims: Sequence[str]) -> list[int]:
        """Return the priorities of running pods, the highest first."""
        keys = (victim.split("/") for victim in victims)
        classes = (self._running[namespace, name]["spec"]["priorityClassName"] for namespace, name in keys)
        return sorted((random_pods.CLASSES[one][0] for one in classes), reverse=True)


def reasons_of(message: str) -> tuple[str, ...]:
    """Return the counted reasons of a message, those of preemption too, in order; their sequence depends on ties."""
    parts = re.split(r"(?:preemption: )?\d+/\d+ nodes are available: |,\s*(?=\d)|(?<=[a-z)}])\.(?:\s+|$)", message)
    return tuple(sorted(part.strip(" .") for part in parts if part.strip(" .")))


def describe(pod: Json) -> str:
    return json.dumps(pod["spec"], sort_keys=True)
