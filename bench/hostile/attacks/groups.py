"""What a tenant can do with groups of pods, whose members are decided about together."""

import json
from collections.abc import AsyncIterator

from bench.hostile.apiserver import LEVELS
from bench.hostile.attack import attack
from bench.hostile.stage import Stage
from bench.loads import scheduler_load as load
from bench.loads.scheduler_load import Json
from mooring import names

_HOST = "kubernetes.io/hostname"
_HALF = 64
_PREFER = [f"example.com/level-{level}" for level in range(LEVELS)]


def _apart(group: str) -> Json:
    term = {"labelSelector": {"matchLabels": {"group": group}}, "topologyKey": _HOST}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def members(group: str, count: int, spec: Json, asked: Json, cpus: int = 1) -> list[Json]:
    """Return a group's members; with more ``cpus`` than one, as many different requests, none of which fits."""
    made = []
    for number in range(count):
        cpu = "1m" if cpus == 1 else f"{100 + number % cpus}"
        pod = load.pod(number, [{}], cpu, spec, {"group": group})
        pod["metadata"]["name"] = f"{group}-{number}"
        pod["metadata"]["annotations"][names.GROUP] = json.dumps({"name": group, "min": count, **asked})
        made.append(pod)
    return made


@attack("group-apart", "two pods that keep apart prefer eight labels that each node has alone", lasts_s=10.0)
async def group_apart(stage: Stage) -> AsyncIterator[None]:
    """Each node is tried by itself, on each level."""
    async with stage.pods(*members("apart", 2, _apart("apart"), {"prefer": _PREFER})):
        yield


@attack("group-never", "a group must share a node, and its two pods keep away from each other", lasts_s=10.0)
async def group_never(stage: Stage) -> AsyncIterator[None]:
    """It is tried again whenever something happens."""
    async with stage.pods(*members("never", 2, _apart("never"), {"within": _HOST, "prefer": _PREFER})):
        yield


@attack("groups-40", "40 such groups come at once", lasts_s=10.0)
async def groups_40(stage: Stage) -> AsyncIterator[None]:
    """Each is a decision of its own, and all are retried."""
    asked: Json = {"within": _HOST, "prefer": _PREFER}
    pods = [pod for number in range(40) for pod in members(f"g{number}", 2, _apart(f"g{number}"), asked)]
    async with stage.pods(*pods):
        yield


@attack(
    "group-large", "a group has one pod more than there are nodes, and each keeps away from the others", lasts_s=10.0
)
async def group_large(stage: Stage) -> AsyncIterator[None]:
    """The last of them fits nowhere, which is known when all others were placed."""
    async with stage.pods(*members("large", stage.nodes + 1, _apart("large"), {"prefer": _PREFER[:2]})):
        yield


@attack(
    "group-half",
    "a group of 64 has its nodes; 63 are replaced by pods that keep apart, of which the last fits nowhere",
    lasts_s=20.0,
)
async def group_half(stage: Stage) -> AsyncIterator[None]:
    """A half placed group comes before all others of its priority, and it is tried again whenever something happens.

    The new pods have another owner, so they are placed together.
    """
    asked: Json = {"prefer": _PREFER}
    placed = members("half", _HALF, {}, asked)
    replaced = members("half", _HALF, _apart("half"), asked)[1:]
    replaced[-1]["spec"]["nodeSelector"] = {"example.com/nowhere": "true"}
    for pod in replaced:
        pod["metadata"]["name"] += "-again"
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "again", "uid": "again", "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]
    async with stage.pods(*placed[:1]):
        async with stage.pods(*placed[1:]):
            await stage.placed("group=half", _HALF)
        async with stage.pods(*replaced):
            yield


@attack("group-all-differ", "a group has 4,000 members that each request something else", lasts_s=10.0)
async def group_all_differ(stage: Stage) -> AsyncIterator[None]:
    """Nodes are judged by each request."""
    async with stage.pods(*members("differ", 4000, {}, {}, cpus=4000)):
        yield
