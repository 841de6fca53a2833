"""The loop against a server, devcluster's and a real one: what is written, what is waited for, and lost answers.

No volume controller runs beside either: the tests write what it and a provisioner would.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer
from mooring.kube.access import Access
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import NotFound
from scheduler.cache.volumes.plan import Provision, VolumePlan
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import PreBind, PreBindResult
from scheduler.cycle.node_dry_run import assigned_pod_for
from scheduler.kube.objects import Pod
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.kube.storage_objects import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    NO_PROVISIONER,
    SELECTED_NODE,
    PersistentVolumeClaim,
)
from scheduler.server.loop import ApiClients, Loop
from scheduler.server.report_writer import ReportWriter
from scheduler.server.writes import pre_bind
from scheduler.state.machine import Machine
from tests.scheduler.volume_store import HOST, on
from tests.support.polling import eventually

Json = dict[str, Any]
NAMESPACED = "/api/v1/namespaces/default"
CLAIMS, PODS, VOLUMES = f"{NAMESPACED}/persistentvolumeclaims", f"{NAMESPACED}/pods", "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_serial = itertools.count()


class Site:
    """A server with two nodes, and what provisioners and the volume controller do."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.mark = f"s{next(_serial)}"

    async def call(self, method: str, path: str, body: Json | None = None) -> Json:
        kind = MERGE_PATCH if method == "PATCH" else "application/json"
        raw = b"" if body is None else msgspec.json.encode(body)
        answer: Json = msgspec.json.decode(await self._client.request(method, path, raw, kind))
        return answer

    async def furnish(self) -> None:
        for name in ("n1", "n2"):
            await self.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {HOST: name}}})
            await self.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
            room = {"cpu": "8", "memory": "16Gi", "pods": "110"}
            await self.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"allocatable": room}})
        late = {"provisioner": "csi.x", "volumeBindingMode": "WaitForFirstConsumer"}
        await self.call("POST", CLASSES, {"metadata": {"name": self.mark}, **late})

    async def clear(self) -> None:
        """Remove what is outside the namespaces that the relay empties: classes, volumes, claims with finalizers."""
        for path in (PODS, CLAIMS, VOLUMES, CLASSES, "/api/v1/nodes"):
            for one in (await self.call("GET", path))["items"]:
                name = one["metadata"]["name"]
                if one["metadata"].get("finalizers"):
                    await self.call("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}})
                try:
                    await self.call("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0} if path == PODS else None)
                except NotFound:
                    continue

    async def static_class(self) -> None:
        """Create a class whose volumes are made by hand only."""
        late = {"provisioner": NO_PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"}
        await self.call("POST", CLASSES, {"metadata": {"name": f"{self.mark}-static"}, **late})

    async def claim(self, name: str, **more: Any) -> Json:
        requests = {"requests": {"storage": "1Gi"}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": requests, "storageClassName": self.mark, **more}
        return await self.call("POST", CLAIMS, {"metadata": {"name": name}, "spec": spec})

    async def volume(self, name: str, phase: str = "Available", **spec: Any) -> None:
        source = {"csi": {"driver": "csi.x", "volumeHandle": name}, "capacity": {"storage": "1Gi"}}
        whole = {**source, "accessModes": ["ReadWriteOnce"], "storageClassName": self.mark, **spec}
        await self.call("POST", VOLUMES, {"metadata": {"name": name}, "spec": whole})
        await self.call("PATCH", f"{VOLUMES}/{name}/status", {"status": {"phase": phase}})

    async def bind(self, claim: str, volume: str) -> None:
        """Do as the volume controller: bind a claim to the volume that names it."""
        patch = {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": volume}}
        await self.call("PATCH", f"{CLAIMS}/{claim}", patch)

    async def pod(self, name: str, claim: str, **more: Any) -> None:
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        containers = [{"name": "c", "image": "i"}]
        spec = {"schedulerName": "mooring", "containers": containers, "volumes": volumes, **more}
        await self.call("POST", PODS, {"metadata": {"name": name}, "spec": spec})

    async def node_of(self, pod: str) -> str:
        return str((await self.call("GET", f"{PODS}/{pod}"))["spec"].get("nodeName") or "")

    async def message(self, pod: str) -> str:
        conditions = (await self.call("GET", f"{PODS}/{pod}"))["status"].get("conditions") or []
        return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")

    async def selected(self, claim: str) -> str:
        """Wait until a claim has a selected node; return that."""

        async def chosen() -> str:
            metadata = (await self.call("GET", f"{CLAIMS}/{claim}"))["metadata"]
            return str((metadata.get("annotations") or {}).get(SELECTED_NODE, ""))

        return await eventually(chosen)


@asynccontextmanager
async def _scheduling(server: ApiServer, client: Client) -> AsyncIterator[None]:
    machine = Machine("mooring")
    clock = asyncio.get_running_loop().time
    async with Client(Access(server.url), timeout_s=2.0) as leaders:
        loop = Loop(machine, ApiClients(client, leaders), ReportWriter(client, "mooring"), clock)
        running = asyncio.create_task(loop.run())
        try:
            await loop.reflectors.ready.wait()
            loop.lead()
            yield
        finally:
            loop.stop()
            async with asyncio.timeout(90):
                await running
            machine.check()


@pytest.fixture
async def site(server: ApiServer, client: Client) -> AsyncIterator[Site]:
    site = Site(client)
    await site.furnish()
    async with _scheduling(server, client):
        yield site
    await site.clear()


async def test_a_static_volume_gets_its_claim_before_the_pod_is_bound(site: Site) -> None:
    """With the claim's uid and the mark of the controller, as kube-scheduler writes it.

    The scheduler may hear of the volume after the pod, since each kind has its own watch: of a class that provisions
    volumes it would ask for another one.
    """
    volume, static = f"{site.mark}-v", f"{site.mark}-static"
    await site.static_class()
    claim = await site.claim("c", storageClassName=static)
    await site.volume(volume, nodeAffinity=on(HOST, "n2"), storageClassName=static)
    await site.pod("p", "c", nodeSelector={HOST: "n2"})

    async def taken() -> str:
        shown = await site.call("GET", f"{VOLUMES}/{volume}")
        return str((shown["spec"].get("claimRef") or {}).get("uid", ""))

    assert await eventually(taken) == claim["metadata"]["uid"]
    shown = await site.call("GET", f"{VOLUMES}/{volume}")
    assert shown["metadata"]["annotations"][BOUND_BY_CONTROLLER] == "yes"
    reference = shown["spec"]["claimRef"]
    assert (reference["kind"], reference["namespace"], reference["name"]) == ("PersistentVolumeClaim", "default", "c")
    assert not await site.node_of("p")
    await site.bind("c", volume)
    assert await eventually(lambda: site.node_of("p")) == "n2"


async def test_a_volume_is_made_for_the_node_that_the_pod_will_get(site: Site) -> None:
    """The claim gets its selected node; nothing else of it changes, and the pod waits for the volume."""
    await site.claim("c")
    await site.pod("p", "c")
    node = await site.selected("c")
    assert not await site.node_of("p")
    volume = f"{site.mark}-made"
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c"}
    await site.volume(volume, "Bound", nodeAffinity=on(HOST, node), claimRef=reference)
    await site.bind("c", volume)
    assert await eventually(lambda: site.node_of("p")) == node


async def test_a_provisioner_that_gives_up_requeues_the_pod(site: Site) -> None:
    """It removes the selected node; the pod gets a message, and another node is chosen after its backoff."""
    await site.claim("c")
    await site.pod("p", "c")
    first = await site.selected("c")
    await site.call("PATCH", f"/api/v1/nodes/{first}", {"spec": {"unschedulable": True}})
    await site.call("PATCH", f"{CLAIMS}/c", {"metadata": {"annotations": {SELECTED_NODE: None}}})

    async def has_given_up() -> bool:
        # The pod may have been seen before its claim: its first message says so.
        return await site.message("p") == 'binding volumes: provisioning failed for PVC "c"'

    assert await eventually(has_given_up)
    assert await site.selected("c") != first


async def test_a_missing_claim_requeues_its_pod_when_it_is_created(site: Site) -> None:
    """Until then the pod has kube-scheduler's message."""
    await site.pod("p", "c")
    nobody = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    expected = f'0/2 nodes are available: persistentvolumeclaim "c" not found. {nobody}'
    assert await eventually(lambda: site.message("p")) == expected
    await site.claim("c")
    assert await site.selected("c")


async def test_a_write_whose_answer_is_lost_is_recognised_by_reading_it_back(server: ApiServer, client: Client) -> None:
    """The repetition is a conflict with our own write: the claim is read back, and the pod is bound in the end."""
    site = Site(client)
    await site.furnish()
    await site.claim("c")
    server.faults.plan(Fault("PATCH", "persistentvolumeclaims/c$", "drop_after"))
    async with _scheduling(server, client):
        await site.pod("p", "c")
        node = await site.selected("c")
        volume = f"{site.mark}-late"
        await site.volume(volume, "Bound")
        await site.bind("c", volume)
        assert await eventually(lambda: site.node_of("p")) == node
    events = (await site.call("GET", f"{NAMESPACED}/events"))["items"]
    assert {one["reason"] for one in events if one["involvedObject"]["name"] == "p"} == {"Scheduled"}
    await site.clear()


class _Garbled(Client):
    """A client whose answers to some methods cannot be read, though the requests are carried out."""

    garbled: frozenset[str] = frozenset()
    asked: tuple[str, ...] = ()

    async def request(self, method: str, path: str, *body: Any, **named: Any) -> bytes:
        answer = await super().request(method, path, *body, **named)
        self.asked += (method,)
        return b"<html>" if method in self.garbled else answer


@pytest.mark.parametrize("garbled", [("PATCH",), ("PATCH", "GET")])
async def test_an_unreadable_answer_is_replaced_by_reading_the_object(
    server: ApiServer, client: Client, garbled: tuple[str, ...]
) -> None:
    """The object is read back once to see what is written; if that fails too the pod is told and tried again."""
    site = Site(client)
    shown = await site.claim("c")
    claim = msgspec.convert(shown, PersistentVolumeClaim)
    pod_info = read_pod_info(msgspec.convert({"metadata": {"name": "p", "uid": "p"}}, Pod))
    assert isinstance(pod_info, PodInfo)
    plan = VolumePlan("n1", provisions=(Provision(claim, "n1"),))
    async with _Garbled(Access(server.url), timeout_s=2.0) as way:
        way.garbled = frozenset(garbled)
        outcome = await pre_bind(way, PreBind(Bind(pod_info, assigned_pod_for(pod_info, "n1"), {}, {}, plan), plan))
        assert way.asked == ("PATCH", "GET")
    now = await site.call("GET", f"{CLAIMS}/c")
    assert now["metadata"]["annotations"][SELECTED_NODE] == "n1"
    if "GET" in garbled:
        assert outcome.fault.startswith("the API server's answer cannot be read: ")
    else:
        assert outcome == PreBindResult({"default/c": now["metadata"]["resourceVersion"]})
    await site.clear()


async def test_a_kind_that_may_not_be_listed_is_named_with_the_permission(server: ApiServer, client: Client) -> None:
    """The scheduler is not ready without it: a pod's volumes are never silently ignored."""
    for plural in ("persistentvolumes", "csinodes"):
        server.faults.plan(Fault("GET", f"/{plural}", "answer", times=1000, code=403))
    async with Client(Access(server.url), timeout_s=2.0) as leaders:
        machine = Machine("mooring")
        clock = asyncio.get_running_loop().time
        loop = Loop(machine, ApiClients(client, leaders), ReportWriter(client, "mooring"), clock)
        running = asyncio.create_task(loop.run())
        lacking = (
            "not listed yet: PersistentVolume (needs permission to list and watch persistentvolumes), "
            "CSINode (needs permission to list and watch csinodes.storage.k8s.io)"
        )

        async def said() -> str:
            return lacking if loop.reflectors.not_ready() == lacking else ""

        await eventually(said)
        loop.stop()
        async with asyncio.timeout(90):
            await running
