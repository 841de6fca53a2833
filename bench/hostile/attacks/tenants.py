"""What a tenant can try to get VFs of a network that is for other namespaces.

Its node has nothing else to give. Before the attack ends, the assignments of all pods are read: a VF in a pod of
another namespace is harm, however little anybody waited for it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiohttp

from bench.hostile.attack import attack
from bench.hostile.attacks.inventories import pf, published
from bench.hostile.stage import Stage
from bench.loads import scheduler_load as load
from bench.loads.scheduler_load import Json
from mooring import names

_NETWORK, _OWNER, _NODE = "owned", "owner", "owned"
# The tenant's own namespace, and those with which one might pass for the owner.
_NAMESPACES = ("default", "owner-2", "owners", "an-owner")
_LABEL = "example.com/hostile"
_OWNERS_S = 30.0
_GROUP = json.dumps({"name": "train", "min": 2})
_VF: Json = {"pf": "pf0", "vf": 1, "pci": "0000:01:00.3", "link": "ethernet", "network": _NETWORK}


def _pods() -> Iterator[Json]:
    """Yield pods in all forms in which a VF can be requested, and with all that Mooring's own programs write."""
    forged = json.dumps({"v": 1, "uid": "forged", "node": _NODE, "vfs": [_VF]})
    rates = json.dumps({"v": 1, "uid": "forged", "node": _NODE, "generation": 1, "rates": [{}], "reserved": [0]})
    requests: list[tuple[str, str]] = [
        (names.REQUEST, text)
        for text in (f'[{{"network":"{_NETWORK}"}}]', '[{"pf":"pf0"}]', '[{"pf":"*","min_tx_rate":1}]', "[{},{}]")
    ]
    requests.append((names.RIT_REQUEST, "[{}]"))
    others: list[Json] = [
        {},
        {names.ASSIGNMENT: forged, names.RATES: rates},
        {names.GROUP: _GROUP},
        {"namespace": _OWNER, "K8S_POD_NAMESPACE": _OWNER, f"{names.REQUEST}.namespace": _OWNER},
    ]
    number = 0
    for namespace in _NAMESPACES:
        for key, text in requests:
            for other in others:
                number += 1
                yield _pod(f"tenant-{number}", namespace, {key: text, **other}, {"schedulerName": names.SCHEDULER_NAME})
        yield _pod(f"extended-{namespace}", namespace, {names.REQUEST: "[{}]"}, {"schedulerName": "default-scheduler"})


def _pod(name: str, namespace: str, annotations: Json, spec: Json) -> Json:
    # The node controller has not run here, so a new node keeps the taint with which the API server creates it.
    placed = {"nodeSelector": {_LABEL: _NODE}, "tolerations": [{"operator": "Exists"}]}
    pod = load.pod(0, [], "1m", placed | spec, {"namespace": _OWNER})
    pod["metadata"] |= {"name": name, "namespace": namespace, "annotations": annotations}
    return pod


@attack("others-networks", "a tenant asks in every form for VFs of a network that is for another namespace")
async def others_networks(stage: Stage) -> AsyncIterator[None]:
    """The owner's own pods get theirs meanwhile."""
    offered = pf(0, "0-63", []) | {"network": _NETWORK, "access": {"namespaces": [_OWNER]}}
    inventory = json.dumps({"v": 1, "boot": load.BOOT, "pfs": [offered]})
    ours = {"schedulerName": names.SCHEDULER_NAME}
    own = _pod("own", _OWNER, {names.REQUEST: "[{}]"}, ours)
    # A group that waits for a second member, which no tenant can be.
    alone = _pod("alone", _OWNER, {names.REQUEST: "[{}]", names.GROUP: _GROUP}, ours)
    async with published(stage, inventory, _NODE), _namespaces(stage), _created(stage, *_pods(), alone, own):
        await stage.patch(f"/api/v1/nodes/{_NODE}", {"metadata": {"labels": {_LABEL: _NODE}}})
        await _bind_by_extender(stage)
        yield
        await _owner_served(stage)
        stage.reached += [text async for text in _given(stage)]
        if names.ASSIGNMENT in (await _annotations(stage, _OWNER))["alone"]:
            stage.reached.append(f"a group of namespace {_OWNER!r} was completed by pods of another")


@asynccontextmanager
async def _namespaces(stage: Stage) -> AsyncIterator[None]:
    made = [name for name in (*_NAMESPACES, _OWNER) if name != "default"]
    for name in made:
        await stage.create("/api/v1/namespaces", {"metadata": {"name": name}})
    try:
        yield
    finally:
        await stage.delete(*(f"/api/v1/namespaces/{name}" for name in made))


@asynccontextmanager
async def _created(stage: Stage, *pods: Json) -> AsyncIterator[None]:
    for pod in pods:
        await stage.create(_path(pod["metadata"]["namespace"]), pod)
    try:
        yield
    finally:
        await stage.delete(*(f"{_path(pod['metadata']['namespace'])}/{pod['metadata']['name']}" for pod in pods))


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


async def _bind_by_extender(stage: Stage) -> None:
    """Ask the extender to bind pods of another scheduler, as whoever reaches its port can."""
    async with aiohttp.ClientSession() as session:
        for namespace in _NAMESPACES:
            name = f"extended-{namespace}"
            found = json.loads(await stage.api.request("GET", f"{_path(namespace)}/{name}"))
            uid = found["metadata"]["uid"]
            asked = {"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": _NODE}
            async with session.post(f"http://127.0.0.1:{stage.extender_port}/scheduler/bind", json=asked) as answer:
                await answer.read()


async def _owner_served(stage: Stage) -> None:
    """Wait until the owner's pod has its VF: otherwise nothing was there to be taken."""
    async with asyncio.timeout(_OWNERS_S):
        while names.ASSIGNMENT not in (await _annotations(stage, _OWNER)).get("own", {}):
            await asyncio.sleep(0.1)


async def _given(stage: Stage) -> AsyncIterator[str]:
    """Yield each pod of a tenant with a VF of the owner's that the scheduler gave it."""
    for namespace in _NAMESPACES:
        for name, annotations in (await _annotations(stage, namespace)).items():
            text = annotations.get(names.ASSIGNMENT, "")
            if _NETWORK in text and '"uid": "forged"' not in text:
                yield f"pod {namespace}/{name} has a VF of network {_NETWORK!r}"


async def _annotations(stage: Stage, namespace: str) -> dict[str, dict[str, str]]:
    listed = json.loads(await stage.api.request("GET", _path(namespace)))
    return {item["metadata"]["name"]: item["metadata"].get("annotations") or {} for item in listed["items"]}
