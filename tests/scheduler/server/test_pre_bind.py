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
from tests.scheduler.conftest import Json
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

        def node(claim: Json) -> str:
            return str(claim["metadata"].get("annotations", {}).get(SELECTED_NODE, ""))

        return node(await when(lambda: self.call("GET", f"{CLAIMS}/c"), node))


@pytest.fixture
async def site(server: ApiServer, client: Client) -> AsyncIterator[Site]:
    """Give a site without a scheduler; remove also what the relay does not remove."""
    site = Site(server, client)
    for name in ("n1", "n2"):
        await site.add_rdma_node(name, labels={HOST: name})
    await site.storage_class(site.mark)
    yield site
    await site.clear(PODS, CLAIMS, VOLUMES, CLASSES, NODES)


async def test_a_static_volume_gets_its_claim_before_the_pod_is_bound(site: Site) -> None:
    """With the claim's uid and the mark of the controller, as kube-scheduler writes it."""
    static = f"{site.mark}-static"
    await site.storage_class(static, NO_PROVISIONER)
    claim = await site.claim(storageClassName=static)
    volume = await site.volume(nodeAffinity=on(HOST, "n2"), storageClassName=static)
    async with site.lead():
        await site.claiming(nodeSelector={HOST: "n2"})
        shown = await when(lambda: site.call("GET", f"{VOLUMES}/{volume}"), lambda shown: shown["spec"].get("claimRef"))
        reference = shown["spec"]["claimRef"]
        assert reference == REFERENCE | {key: claim["metadata"][key] for key in ("uid", "resourceVersion")}
        assert shown["metadata"]["annotations"][BOUND_BY_CONTROLLER] == "yes"
        assert not await site.is_bound()
        await site.bind_claim(volume)
        assert (await site.bound_pod()).spec.node_name == "n2"


@pytest.mark.parametrize("is_answer_lost", [False, True])
async def test_a_volume_is_made_for_the_node_that_the_pod_will_get(site: Site, is_answer_lost: bool) -> None:
    """The claim gets its selected node; nothing else of it changes, and the pod waits for the volume.

    If the answer is lost, the repetition is a conflict with our own write: the claim is read back.
    """
    await site.claim()
    if is_answer_lost:
        site.plan(Fault("PATCH", "persistentvolumeclaims/c$", "drop_after"))
    async with site.lead():
        await site.claiming()
        node = await site.selected()
        assert not await site.is_bound()
        await site.bind_claim(await site.volume("Bound", nodeAffinity=on(HOST, node), claimRef=REFERENCE))
        assert (await site.bound_pod()).spec.node_name == node
    assert {event["reason"] for event in await site.events("p")} == {"Scheduled"}


class _Garbled(Client):
    """A client whose answers to some methods cannot be read, though the requests are carried out."""

    garbled: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()

    async def request(self, method: str, path: str, *body: Any, **named: Any) -> bytes:
        answer = await super().request(method, path, *body, **named)
        self.sent += (method,)
        return b"<html>" if method in self.garbled else answer


@pytest.mark.parametrize("garbled", [("PATCH",), ("PATCH", "GET")])
async def test_an_unreadable_answer_is_replaced_by_reading_the_object(site: Site, garbled: tuple[str, ...]) -> None:
    """The object is read back once to see what is written; if that fails too, the pod's message says so."""
    claim = msgspec.convert(await site.claim(), PersistentVolumeClaim)
    pod_info = read_pod_info(msgspec.convert({"metadata": {"name": "p", "uid": "p"}}, Pod))
    assert isinstance(pod_info, PodInfo)
    plan = VolumePlan("n1", provisions=(Provision(claim, "n1"),))
    async with _Garbled(Access(site.server.url), timeout_s=2.0) as client:
        client.garbled = garbled
        order = PreBind(Bind(pod_info, assigned_pod_for(pod_info, "n1"), {}, {}, plan), plan)
        outcome = await pre_bind(client, order)
        assert client.sent == ("PATCH", "GET")
    now = await site.call("GET", f"{CLAIMS}/c")
    assert now["metadata"]["annotations"][SELECTED_NODE] == "n1"
    if "GET" in garbled:
        assert outcome.fault.startswith("the API server's answer cannot be read: ")
    else:
        assert outcome == PreBindResult({"default/c": now["metadata"]["resourceVersion"]})
