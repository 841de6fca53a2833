"""Where volumes let a pod go, by a real kube-scheduler and by ours, on the same objects of a real API server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mooring.kube.access import Access, load_access
from mooring.kube.client import JSON, MERGE_PATCH, Client
from scheduler.kube.storage_objects import BIND_COMPLETED, SELECTED_NODE
from tests.scheduler.conftest import Json
from tests.scheduler.server.cluster import PODS, Cluster
from tests.scheduler.server.process import ALONE, kube_scheduler, scheduler
from tests.support.polling import eventually
from tests.support.relay import Relay

pytestmark = pytest.mark.apiserver
ZONE, RACK = "topology.kubernetes.io/zone", "rack"
NODES = {"n1": {ZONE: "a", RACK: "1"}, "n2": {ZONE: "b", RACK: "2"}, "n3": {RACK: "3"}}
_CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
_STORAGE = "/apis/storage.k8s.io/v1"
_SIZE = {"storage": "1Gi"}


def _in(key: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


# What a case has beside the defaults: a volume (None: unbound), the claim's class and fields, the pod's spec.
CASES: dict[str, Json] = {
    "terms": {"volume": {"where": [_in(RACK, "9"), _in(RACK, "2")]}},
    "nowhere": {"volume": {"where": [_in(RACK, "9")]}},
    "zones": {"volume": {"labels": {ZONE: "x__b"}}, "pod": {"nodeSelector": {RACK: "2"}}},
    "no-zone": {"volume": {"labels": {ZONE: "x__y"}}, "pod": {"nodeSelector": {RACK: "2"}}},
    "empty-zone": {"volume": {"labels": {ZONE: "x____y"}}, "pod": {"nodeSelector": {RACK: "2"}}},
    "once": {"modes": ["ReadWriteOncePod"], "volume": {}, "user": "n1"},
    "none-attached": {"volume": {"driver": "none"}, "pod": {"nodeSelector": {RACK: "1"}}},
    "immediate": {"class": {"volumeBindingMode": "Immediate"}},
    "by-hand": {"class": {"provisioner": "kubernetes.io/no-provisioner"}},
    "chosen": {"class": {}, "annotations": {SELECTED_NODE: "n2"}},
    "chosen-gone": {"class": {}, "annotations": {SELECTED_NODE: "n9"}},
    "topology": {"class": {"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]}},
    "room": {"class": {"provisioner": "tells"}, "room": {"1": "1Mi", "2": "9Gi"}},
    "no-room": {"class": {"provisioner": "tells"}, "room": {"1": "1Mi", "2": "2Mi"}},
}


def _objects(name: str, scheduler: str, given: Json) -> Iterator[tuple[str, Json]]:
    """Yield path and body of each object of a case for one scheduler."""
    metadata: Json = {"name": name}
    claim: Json = {"storageClassName": name if "class" in given else "", "resources": {"requests": _SIZE}}
    claim["accessModes"] = given.get("modes", ["ReadWriteOnce"])
    annotations = given.get("annotations", {})
    if "class" in given:
        late = {"provisioner": "csi.x", "volumeBindingMode": "WaitForFirstConsumer"}
        yield f"{_STORAGE}/storageclasses", {"metadata": metadata} | late | given["class"]
    for rack, size in given.get("room", {}).items():
        room = {"storageClassName": name, "capacity": size, "nodeTopology": {"matchLabels": {RACK: rack}}}
        path = f"{_STORAGE}/namespaces/default/csistoragecapacities"
        yield path, {"metadata": {"name": f"{name}-{rack}"}} | room
    if "volume" in given:
        volume = given["volume"]
        claim["volumeName"], annotations = name, {BIND_COMPLETED: "yes"}
        spec: Json = {"capacity": _SIZE, "accessModes": claim["accessModes"]}
        spec |= {"claimRef": {"namespace": "default", "name": name}}
        spec["csi"] = {"driver": volume.get("driver", "csi.x"), "volumeHandle": name}
        if "where" in volume:
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": volume["where"]}}
        labels = {"labels": volume.get("labels", {})}
        yield "/api/v1/persistentvolumes", {"metadata": metadata | labels, "spec": spec}
    yield _CLAIMS, {"metadata": metadata | {"annotations": annotations}, "spec": claim}
    pod: Json = {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]}
    pod["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
    if "user" in given:
        yield PODS, {"metadata": {"name": f"user-{name}"}, "spec": pod | {"nodeName": given["user"]}}
    yield PODS, {"metadata": metadata, "spec": pod | given.get("pod", {})}


class Side:
    """All cases for one scheduler; the objects' names end with its own."""

    def __init__(self, client: Client, scheduler: str) -> None:
        self._client, self._scheduler = client, scheduler

    async def furnish(self, case: str, given: Json) -> None:
        for path, body in _objects(f"{case}-{self._scheduler}", self._scheduler, given):
            await self._client.request("POST", path, msgspec.json.encode(body))

    async def outcome(self, case: str) -> tuple[str, str]:
        """Wait for the outcome of a pod; return the node that it or its claim got, and its message."""

        async def found() -> tuple[str, str] | None:
            pod, claim = [await self._get(f"{path}/{case}-{self._scheduler}") for path in (PODS, _CLAIMS)]
            reasons = [
                one.get("message", "") for one in pod["status"].get("conditions", ()) if one["status"] == "False"
            ]
            node = pod["spec"].get("nodeName") or claim["metadata"].get("annotations", {}).get(SELECTED_NODE, "")
            is_over = reasons or pod["spec"].get("nodeName") or (node and case != "chosen-gone")
            # What follows the first sentence is preemption's, and with kube-scheduler dynamic resources'.
            return (node, "".join(reasons).partition(". ")[0]) if is_over else None

        return await eventually(found)

    async def _get(self, path: str) -> Any:
        return msgspec.json.decode(await self._client.request("GET", path))


async def _furnish_nodes(client: Client) -> None:
    """Create three nodes; one driver attaches no volumes to the first, another one publishes its capacity."""
    status: Json = {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"}}
    status |= {"conditions": [{"type": "Ready", "status": "True"}]}

    async def send(method: str, path: str, body: Json) -> None:
        await client.request(method, path, msgspec.json.encode(body), MERGE_PATCH if method == "PATCH" else JSON)

    for name, labels in NODES.items():
        await send("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        await send("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
        await send("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
    drivers = [{"name": "none", "nodeID": "none", "allocatable": {"count": 0}}]
    await send("POST", f"{_STORAGE}/csinodes", {"metadata": {"name": "n1"}, "spec": {"drivers": drivers}})
    await send("POST", f"{_STORAGE}/csidrivers", {"metadata": {"name": "tells"}, "spec": {"storageCapacity": True}})


@pytest.fixture
async def sides(own_server: Path, tmp_path: Path) -> AsyncIterator[tuple[Side, Side]]:
    async with Relay(load_access(str(own_server))) as relay, Client(Access(relay.url), timeout_s=10.0) as client:
        await relay.empty()
        await _furnish_nodes(client)
        sides = Side(client, "default-scheduler"), Side(client, "mooring")
        await asyncio.gather(*(side.furnish(case, given) for side in sides for case, given in CASES.items()))
        async with kube_scheduler({}, own_server, tmp_path), scheduler(Cluster(client, own_server), *ALONE):
            yield sides


async def test_pods_with_volumes_go_where_kube_scheduler_puts_them(sides: tuple[Side, Side]) -> None:
    """The same node for the pod or its claim, and the same message up to what other plugins add."""
    expected, found = [{case: await side.outcome(case) for case in CASES} for side in sides]
    assert found == expected
    assert (expected["room"][0], expected["terms"][0]) == ("n2", "n2")
