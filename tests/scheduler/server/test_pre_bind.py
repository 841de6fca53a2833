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
from mooring.kube.client import Client
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
from scheduler.server.writes import pre_bind
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode
from tests.scheduler.server.cluster import NODES, PODS, Cluster, following
from tests.scheduler.volume_store import HOST, on
from tests.support.polling import eventually, until

Json = dict[str, Any]
CLAIMS, VOLUMES = "/api/v1/namespaces/default/persistentvolumeclaims", "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_serial = itertools.count()


class Site(Cluster):
    """A server with two nodes, and what provisioners and the volume controller do."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.mark = f"s{next(_serial)}"

    async def furnish(self, make_node: MakeNode) -> None:
        for name in ("n1", "n2"):
            await self.add_node(make_node(name, labels={HOST: name}))
        await self.storage_class(self.mark, "csi.x")

    async def clear(self) -> None:
        """Remove what is outside the namespaces that the relay empties: classes, volumes, claims with finalizers."""
        for path in (PODS, CLAIMS, VOLUMES, CLASSES, NODES):
            for one in (await self.call("GET", path))["items"]:
                name = one["metadata"]["name"]
                if one["metadata"].get("finalizers"):
                    await self.patch(f"{path}/{name}", metadata={"finalizers": None})
                try:
                    await self.call("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0} if path == PODS else None)
                except NotFound:
                    continue

    async def storage_class(self, name: str, provisioner: str) -> None:
        late = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        await self.call("POST", CLASSES, {"metadata": {"name": name}, **late})

    async def claim(self, name: str, **more: Any) -> Json:
        requests = {"requests": {"storage": "1Gi"}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": requests, "storageClassName": self.mark, **more}
        shown: Json = await self.call("POST", CLAIMS, {"metadata": {"name": name}, "spec": spec})
        return shown

    async def volume(self, name: str, phase: str = "Available", **spec: Any) -> None:
        source = {"csi": {"driver": "csi.x", "volumeHandle": name}, "capacity": {"storage": "1Gi"}}
        whole = {**source, "accessModes": ["ReadWriteOnce"], "storageClassName": self.mark, **spec}
        await self.call("POST", VOLUMES, {"metadata": {"name": name}, "spec": whole})
        await self.patch(f"{VOLUMES}/{name}/status", status={"phase": phase})

    async def bind_claim(self, claim: str, volume: str) -> None:
        """Do as the volume controller: bind a claim to the volume that names it."""
        annotations = {BIND_COMPLETED: "yes"}
        await self.patch(f"{CLAIMS}/{claim}", metadata={"annotations": annotations}, spec={"volumeName": volume})

    async def claiming(self, claim: str, **spec: Any) -> None:
        """Add a pod with this claim."""
        await self.add_pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}], **spec)

    async def selected(self, claim: str) -> str:
        """Wait until a claim has a selected node; return that."""

        async def chosen() -> str:
            metadata = (await self.call("GET", f"{CLAIMS}/{claim}"))["metadata"]
            return str((metadata.get("annotations") or {}).get(SELECTED_NODE, ""))

        return await eventually(chosen)


@asynccontextmanager
async def _scheduling(server: ApiServer, client: Client) -> AsyncIterator[None]:
    clock = asyncio.get_running_loop().time
    async with (
        Client(Access(server.url), timeout_s=2.0) as leaders,
        following(Machine("mooring"), client, leaders, clock) as (loop, _),
    ):
        await loop.reflectors.ready.wait()
        loop.lead()
        yield


@pytest.fixture
async def idle(client: Client, make_node: MakeNode) -> AsyncIterator[Site]:
    """Give a site without a scheduler."""
    site = Site(client)
    await site.furnish(make_node)
    yield site
    await site.clear()


@pytest.fixture
async def site(idle: Site, server: ApiServer) -> AsyncIterator[Site]:
    async with _scheduling(server, idle.client):
        yield idle


async def test_a_static_volume_gets_its_claim_before_the_pod_is_bound(site: Site) -> None:
    """With the claim's uid and the mark of the controller, as kube-scheduler writes it.

    The scheduler may hear of the volume after the pod, since each kind has its own watch: of a class that provisions
    volumes it would ask for another one.
    """
    volume, static = f"{site.mark}-v", f"{site.mark}-static"
    await site.storage_class(static, NO_PROVISIONER)
    claim = await site.claim("c", storageClassName=static)
    await site.volume(volume, nodeAffinity=on(HOST, "n2"), storageClassName=static)
    await site.claiming("c", nodeSelector={HOST: "n2"})

    async def taken() -> str:
        shown = await site.call("GET", f"{VOLUMES}/{volume}")
        return str((shown["spec"].get("claimRef") or {}).get("uid", ""))

    assert await eventually(taken) == claim["metadata"]["uid"]
    shown = await site.call("GET", f"{VOLUMES}/{volume}")
    assert shown["metadata"]["annotations"][BOUND_BY_CONTROLLER] == "yes"
    reference = shown["spec"]["claimRef"]
    assert (reference["kind"], reference["namespace"], reference["name"]) == ("PersistentVolumeClaim", "default", "c")
    assert not await site.is_bound()
    await site.bind_claim("c", volume)
    assert (await site.bound_pod()).spec.node_name == "n2"


async def test_a_volume_is_made_for_the_node_that_the_pod_will_get(site: Site) -> None:
    """The claim gets its selected node; nothing else of it changes, and the pod waits for the volume."""
    await site.claim("c")
    await site.claiming("c")
    node = await site.selected("c")
    assert not await site.is_bound()
    volume = f"{site.mark}-made"
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c"}
    await site.volume(volume, "Bound", nodeAffinity=on(HOST, node), claimRef=reference)
    await site.bind_claim("c", volume)
    assert (await site.bound_pod()).spec.node_name == node


async def test_a_provisioner_that_gives_up_requeues_the_pod(site: Site) -> None:
    """It removes the selected node; the pod gets a message, and another node is chosen after its backoff."""
    await site.claim("c")
    await site.claiming("c")
    first = await site.selected("c")
    await site.patch(f"{NODES}/{first}", spec={"unschedulable": True})
    await site.patch(f"{CLAIMS}/c", metadata={"annotations": {SELECTED_NODE: None}})

    async def has_given_up() -> bool:
        # The pod may have been seen before its claim: its first message says so.
        return await site.message_of() == 'binding volumes: provisioning failed for PVC "c"'

    assert await eventually(has_given_up)
    assert await site.selected("c") != first


async def test_a_missing_claim_requeues_its_pod_when_it_is_created(site: Site) -> None:
    """Until then the pod has kube-scheduler's message."""
    await site.claiming("c")
    nobody = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    expected = f'0/2 nodes are available: persistentvolumeclaim "c" not found. {nobody}'
    assert await site.message_of() == expected
    await site.claim("c")
    assert await site.selected("c")


async def test_a_write_whose_answer_is_lost_is_recognised_by_reading_it_back(server: ApiServer, idle: Site) -> None:
    """The repetition is a conflict with our own write: the claim is read back, and the pod is bound in the end."""
    await idle.claim("c")
    server.faults.plan(Fault("PATCH", "persistentvolumeclaims/c$", "drop_after"))
    async with _scheduling(server, idle.client):
        await idle.claiming("c")
        node = await idle.selected("c")
        volume = f"{idle.mark}-late"
        await idle.volume(volume, "Bound")
        await idle.bind_claim("c", volume)
        assert (await idle.bound_pod()).spec.node_name == node
    assert {event["reason"] for event in await idle.events("p")} == {"Scheduled"}


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
    server: ApiServer, idle: Site, garbled: tuple[str, ...]
) -> None:
    """The object is read back once to see what is written; if that fails too the pod is told and tried again."""
    shown = await idle.claim("c")
    claim = msgspec.convert(shown, PersistentVolumeClaim)
    pod_info = read_pod_info(msgspec.convert({"metadata": {"name": "p", "uid": "p"}}, Pod))
    assert isinstance(pod_info, PodInfo)
    plan = VolumePlan("n1", provisions=(Provision(claim, "n1"),))
    async with _Garbled(Access(server.url), timeout_s=2.0) as way:
        way.garbled = frozenset(garbled)
        outcome = await pre_bind(way, PreBind(Bind(pod_info, assigned_pod_for(pod_info, "n1"), {}, {}, plan), plan))
        assert way.asked == ("PATCH", "GET")
    now = await idle.call("GET", f"{CLAIMS}/c")
    assert now["metadata"]["annotations"][SELECTED_NODE] == "n1"
    if "GET" in garbled:
        assert outcome.fault.startswith("the API server's answer cannot be read: ")
    else:
        assert outcome == PreBindResult({"default/c": now["metadata"]["resourceVersion"]})


async def test_a_kind_that_may_not_be_listed_is_named_with_the_permission(server: ApiServer, client: Client) -> None:
    """The scheduler is not ready without it: a pod's volumes are never silently ignored."""
    for plural in ("persistentvolumes", "csinodes"):
        server.faults.plan(Fault("GET", f"/{plural}", "answer", times=1000, code=403))
    missing = (
        "not listed yet: PersistentVolume (needs permission to list and watch persistentvolumes), "
        "CSINode (needs permission to list and watch csinodes.storage.k8s.io)"
    )
    async with following(Machine("mooring"), client) as (loop, _):
        await until(lambda: loop.reflectors.not_ready() == missing)
