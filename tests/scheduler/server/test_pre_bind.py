"""The loop against a server, devcluster's and a real one: what is written, what is waited for, and lost answers.

No volume controller runs beside either: the tests write what it and a provisioner would.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer
from mooring.kube.access import Access
from mooring.kube.client import Client
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
from tests.scheduler.conftest import Json, MakeNode, MakePf
from tests.scheduler.server.cluster import NODES, PODS, when
from tests.scheduler.server.stage import Stage
from tests.scheduler.volume_store import HOST, on

CLAIMS, VOLUMES = "/api/v1/namespaces/default/persistentvolumeclaims", "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
REFERENCE = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "c"}
ONE_GB = {"storage": "1Gi"}
_serial = itertools.count()


class Site(Stage):
    """A server with two nodes, and what provisioners and the volume controller do; time passes."""

    def __init__(self, server: ApiServer, client: Client) -> None:
        super().__init__(server, client)
        self.mark = f"s{next(_serial)}"

    def clock(self) -> float:
        return asyncio.get_running_loop().time()

    async def storage_class(self, name: str, provisioner: str = "csi.x") -> None:
        late = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        await self.call("POST", CLASSES, {"metadata": {"name": name}, **late})

    async def claim(self, **spec: Any) -> Json:
        """Add claim c."""
        whole = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": ONE_GB}, "storageClassName": self.mark}
        shown: Json = await self.call("POST", CLAIMS, {"metadata": {"name": "c"}, "spec": whole | spec})
        return shown

    async def claiming(self, **spec: Any) -> None:
        """Add pod p with claim c."""
        await self.add_pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}], **spec)

    async def volume(self, phase: str = "Available", **spec: Any) -> str:
        """Add a volume; return its name."""
        name = f"{self.mark}-v"
        source = {"csi": {"driver": "csi.x", "volumeHandle": name}, "capacity": ONE_GB}
        whole = {**source, "accessModes": ["ReadWriteOnce"], "storageClassName": self.mark, **spec}
        await self.call("POST", VOLUMES, {"metadata": {"name": name}, "spec": whole})
        await self.patch(f"{VOLUMES}/{name}/status", status={"phase": phase})
        return name

    async def bind_claim(self, volume: str) -> None:
        """Do as the volume controller: bind the claim to the volume that names it."""
        annotations = {BIND_COMPLETED: "yes"}
        await self.patch(f"{CLAIMS}/c", metadata={"annotations": annotations}, spec={"volumeName": volume})

    async def selected(self) -> str:
        """Wait until the claim has a selected node; return that."""

        async def node() -> str:
            metadata = (await self.call("GET", f"{CLAIMS}/c"))["metadata"]
            return str((metadata.get("annotations") or {}).get(SELECTED_NODE, ""))

        return await when(node, bool)


@pytest.fixture
async def idle(server: ApiServer, client: Client, make_node: MakeNode, make_pf: MakePf) -> AsyncIterator[Site]:
    """Give a site without a scheduler; remove also what the relay does not remove."""
    site = Site(server, client)
    site.make_node, site.make_pf = make_node, make_pf
    for name in ("n1", "n2"):
        await site.add_rdma_node(name, labels={HOST: name})
    await site.storage_class(site.mark)
    yield site
    await site.clear(PODS, CLAIMS, VOLUMES, CLASSES, NODES)


@pytest.fixture
async def site(idle: Site) -> AsyncIterator[Site]:
    async with idle.lead():
        yield idle


async def test_a_static_volume_gets_its_claim_before_the_pod_is_bound(site: Site) -> None:
    """With the claim's uid and the mark of the controller, as kube-scheduler writes it.

    The scheduler may hear of the volume after the pod, since each kind has its own watch: of a class that provisions
    volumes it would ask for another one.
    """
    static = f"{site.mark}-static"
    await site.storage_class(static, NO_PROVISIONER)
    claim = await site.claim(storageClassName=static)
    volume = await site.volume(nodeAffinity=on(HOST, "n2"), storageClassName=static)
    await site.claiming(nodeSelector={HOST: "n2"})
    shown = await when(lambda: site.call("GET", f"{VOLUMES}/{volume}"), lambda shown: shown["spec"].get("claimRef"))
    reference = shown["spec"]["claimRef"]
    assert reference == REFERENCE | {key: claim["metadata"][key] for key in ("uid", "resourceVersion")}
    assert shown["metadata"]["annotations"][BOUND_BY_CONTROLLER] == "yes"
    assert not await site.is_bound()
    await site.bind_claim(volume)
    assert (await site.bound_pod()).spec.node_name == "n2"


@pytest.mark.parametrize("is_answer_lost", [False, True])
async def test_a_volume_is_made_for_the_node_that_the_pod_will_get(idle: Site, is_answer_lost: bool) -> None:
    """The claim gets its selected node; nothing else of it changes, and the pod waits for the volume.

    If the answer is lost, the repetition is a conflict with our own write: the claim is read back.
    """
    await idle.claim()
    if is_answer_lost:
        idle.plan(Fault("PATCH", "persistentvolumeclaims/c$", "drop_after"))
    async with idle.lead():
        await idle.claiming()
        node = await idle.selected()
        assert not await idle.is_bound()
        await idle.bind_claim(await idle.volume("Bound", nodeAffinity=on(HOST, node), claimRef=REFERENCE))
        assert (await idle.bound_pod()).spec.node_name == node
    assert {event["reason"] for event in await idle.events("p")} == {"Scheduled"}


async def test_a_provisioner_that_gives_up_requeues_the_pod(site: Site) -> None:
    """It removes the selected node; the pod gets a message, and another node is chosen after its backoff."""
    await site.claim()
    await site.claiming()
    first = await site.selected()
    await site.patch(f"{NODES}/{first}", spec={"unschedulable": True})
    await site.patch(f"{CLAIMS}/c", metadata={"annotations": {SELECTED_NODE: None}})
    # The pod may have been seen before its claim: its first message says so.
    await site.reaches(message='binding volumes: provisioning failed for PVC "c"')
    assert await site.selected() != first


async def test_a_missing_claim_requeues_its_pod_when_it_is_created(site: Site) -> None:
    """Until then the pod has kube-scheduler's message."""
    await site.claiming()
    nobody = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    expected = f'0/2 nodes are available: persistentvolumeclaim "c" not found. {nobody}'
    assert await site.message_of() == expected
    await site.claim()
    assert await site.selected()


class _Garbled(Client):
    """A client whose answers to some methods cannot be read, though the requests are carried out."""

    garbled: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()

    async def request(self, method: str, path: str, *body: Any, **named: Any) -> bytes:
        answer = await super().request(method, path, *body, **named)
        self.sent += (method,)
        return b"<html>" if method in self.garbled else answer


@pytest.mark.parametrize("garbled", [("PATCH",), ("PATCH", "GET")])
async def test_an_unreadable_answer_is_replaced_by_reading_the_object(idle: Site, garbled: tuple[str, ...]) -> None:
    """The object is read back once to see what is written; if that fails too, the pod's message says so."""
    claim = msgspec.convert(await idle.claim(), PersistentVolumeClaim)
    pod_info = read_pod_info(msgspec.convert({"metadata": {"name": "p", "uid": "p"}}, Pod))
    assert isinstance(pod_info, PodInfo)
    plan = VolumePlan("n1", provisions=(Provision(claim, "n1"),))
    async with _Garbled(Access(idle.server.url), timeout_s=2.0) as client:
        client.garbled = garbled
        order = PreBind(Bind(pod_info, assigned_pod_for(pod_info, "n1"), {}, {}, plan), plan)
        outcome = await pre_bind(client, order)
        assert client.sent == ("PATCH", "GET")
    now = await idle.call("GET", f"{CLAIMS}/c")
    assert now["metadata"]["annotations"][SELECTED_NODE] == "n1"
    if "GET" in garbled:
        assert outcome.fault.startswith("the API server's answer cannot be read: ")
    else:
        assert outcome == PreBindResult({"default/c": now["metadata"]["resourceVersion"]})
