"""The programs under exactly the rights that the manifests give them: nothing is refused, and nothing is too much."""

import asyncio
import contextlib
import itertools
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from advertiser.formats.shim_condition import TYPE
from advertiser.publish.publisher import patch_inventory
from cri_shim.records import Records
from devcluster.apiserver.access.rbac import Attributes
from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer, Options
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.inventory import Inventory, Pf, dump_inventory
from mooring.files import write_file, write_shared
from mooring.indexes import Indexes
from mooring.kube.access import load_access
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import Refused
from mooring.nic.settings import VfSettings
from mooring.records import node_check
from mooring.records.ledger import LedgerEntry, Netns, Original, dump_ledger_entry, ledger_name
from mooring.records.node_check import NodeCheck, dump_node_check
from mooring.records.pod_record import PodRecord
from scheduler.cycle.instructions import Evict
from scheduler.extender.resource_claims import ClaimedDevices
from scheduler.kube.objects import Pod
from scheduler.server.evict import evict
from scheduler.server.http.claimed_devices import read_claimed_devices
from tests.manifests.accounts import NAMESPACE, NODE_NAMESPACE, Program, put, unneeded
from tests.manifests.conftest import behind_the_guard
from tests.manifests.kustomize import COMPONENTS, render
from tests.manifests.rendering import raw
from tests.scheduler.server.http.claims import Claims, claiming
from tests.support import polling

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
SCHEDULER, ADVERTISER = Program("scheduler"), Program("advertiser")
EXTENDER = Program("scheduler", ("components/extender/rbac.yaml",))
_FLOWS, _FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", "base/flow/scheduler.yaml"
_STORAGE, _VOLUMES = "/apis/storage.k8s.io/v1", "/api/v1/persistentvolumes"
_CLAIM = "persistentvolumeclaims"
_CLAIMS = f"/api/v1/namespaces/default/{_CLAIM}"
_VF = "0000:04:00.3"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A server with RBAC, and an administrator of it."""

    admin: Client
    kubeconfig: Path
    own: ApiServer | None = None

    async def get(self, path: str, **params: str) -> Any:
        return msgspec.json.decode(await self.admin.request("GET", path, params=params))

    async def post(self, path: str, body: Any) -> Any:
        return msgspec.json.decode(await self.admin.request("POST", path, msgspec.json.encode(body)))

    async def patch(self, path: str, body: Any) -> None:
        await self.admin.request("PATCH", path, msgspec.json.encode(body), MERGE_PATCH)

    @asynccontextmanager
    async def acting(self, program: Program, folder: Path, **bound: Any) -> AsyncIterator[Client]:
        """Give a client with a program's rights, and leave its kubeconfig under the program's name."""
        await program.install(self.admin)
        await program.log_in(self.admin, self.kubeconfig, folder / program.component, **bound)
        async with Client(load_access(str(folder / program.component))) as client:
            yield client

    async def add_pod(self, name: str, request: str, **spec: Any) -> None:
        containers = [{"name": "c", "image": "i"}]
        spec = {"schedulerName": "mooring", "automountServiceAccountToken": False, "containers": containers, **spec}
        await self.post(PODS, {"metadata": {"name": name, "annotations": {names.REQUEST: request}}, "spec": spec})

    async def until(self, path: str, holds: Callable[[Any], bool], **params: str) -> Any:
        """Return what is at a path as soon as it is as expected."""

        async def wished() -> tuple[Any] | None:
            found = await self.get(path, **params)
            return (found,) if holds(found) else None

        (found,) = await polling.eventually(wished)
        return found

    async def seen(self, asked: Attributes) -> None:
        """Wait until the scheduler has sent this request, where the server remembers it."""
        if self.own is not None and (authorizer := self.own.authorizer) is not None:
            await polling.until(lambda: asked in authorizer.asked(SCHEDULER.user))


@pytest.fixture(params=["devcluster", pytest.param("real", marks=pytest.mark.apiserver)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Start devcluster's server, and once more a real one, with the guard before it."""
    async with contextlib.AsyncExitStack() as stack:
        own = None
        if request.param == "devcluster":
            own = await stack.enter_async_context(ApiServer(Options(rbac=True)))
            (kubeconfig := tmp_path / "admin").write_text(own.kubeconfig_text())
        else:
            kubeconfig = request.getfixturevalue("guarded_server")
            await stack.enter_async_context(behind_the_guard(kubeconfig))
        admin = await stack.enter_async_context(Client(load_access(str(kubeconfig))))
        yield Cluster(admin, kubeconfig, own)
        if own is None:
            await _emptied(admin)


async def _emptied(admin: Client) -> None:
    for path in (PODS, EVENTS, "/api/v1/nodes"):
        await admin.request("DELETE", path, params={"gracePeriodSeconds": "0"})


@asynccontextmanager
async def running(module: str, *arguments: str) -> AsyncIterator[Process]:
    """Run a program; it must end cleanly, and nothing that it logs may have been forbidden."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *arguments, stderr=PIPE)
    said = asyncio.create_task(process.communicate())
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(said, 90)
    assert process.returncode == 0, log.decode()
    assert b"forbidden" not in log, log.decode()


async def _add_node(cluster: Cluster, name: str, folder: Path) -> None:
    """Add a node with one VF; where the guard stands, no other account could write its inventory."""
    await cluster.post("/api/v1/nodes", {"metadata": {"name": name}})
    pf = Pf("pf0", "0000:04:00.0", "ethernet", "rail0", 100_000, 90_000, up=True, vfs=Indexes.of([0]), vf0=_VF)
    async with cluster.acting(ADVERTISER, folder, kind="Node", name=name) as advertiser:
        await patch_inventory(advertiser, name, dump_inventory(Inventory("boot-1", (pf,))))
    await cluster.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
    status = {
        "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"bootID": "boot-1"},
    }
    await cluster.patch(f"/api/v1/nodes/{name}/status", {"status": status})


async def test_the_scheduler_runs_under_its_rights_and_needs_each(cluster: Cluster, tmp_path: Path) -> None:
    """It leads, binds, reads back, writes twice why a pod waits, prepares volumes, preempts, evicts, ends the Lease."""
    await _add_node(cluster, "n1", tmp_path)
    if cluster.own is not None:
        # A kind that the scheduler watches only where it is served.
        spec = {"metadata": {"name": "train"}, "spec": {"minMember": 2}, "kind": "PodGroup"}
        await cluster.post("/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups", spec)
    flags = [flag for flag in SCHEDULER.arguments(NAMESPACE=NAMESPACE) if not flag.startswith("--metrics-addr")]
    async with cluster.acting(SCHEDULER, tmp_path) as client:
        async with running("scheduler", *flags, "--metrics-addr=", "--kubeconfig", str(tmp_path / "scheduler")):
            await _bind_and_wait(cluster)
            await _tell_a_pod_group(cluster)
            await _prepare_volumes(cluster)
            await cluster.add_pod("urgent", "[{}]", priorityClassName="system-cluster-critical")
            await cluster.until(PODS, _is_going, fieldSelector="metadata.name=fits")
        # A node must contradict an assignment for 5 minutes before its pod is evicted: the request alone is made here.
        pod = msgspec.convert(await cluster.get(f"{PODS}/waits"), Pod)
        assert await evict(client, Evict(pod, "its VF is gone")) == "evicted"
    lease = await cluster.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/mooring-scheduler")
    assert not lease["spec"].get("holderIdentity")
    if cluster.own is not None and (authorizer := cluster.own.authorizer) is not None:
        assert authorizer.refused == {}
        assert unneeded(SCHEDULER.rights(), authorizer.asked(SCHEDULER.user)) == []


async def _bind_and_wait(cluster: Cluster) -> None:
    if cluster.own is not None:
        # Its answer is lost: the pod must be read back.
        cluster.own.faults.plan(Fault("POST", "/pods/fits/binding$", "drop_after"))
    await cluster.add_pod("fits", "[{}]")
    bound = await cluster.until(f"{PODS}/fits", lambda pod: "nodeName" in pod["spec"])
    assert names.ASSIGNMENT in bound["metadata"]["annotations"]
    await cluster.add_pod("waits", "[{},{}]")
    await cluster.until(f"{PODS}/waits", _is_told)
    # A repeated message is counted in the event that is there.
    for request, count in (("[{},{}]", 1), ('[{"x":1}]', 1), ("[{},{}]", 2)):
        await cluster.patch(f"{PODS}/waits", {"metadata": {"annotations": {names.REQUEST: request}}})
        part = "unknown field" if "x" in request else "not enough free RDMA VFs"
        await cluster.until(EVENTS, partial(_tells, part=part, count=count))


async def _tell_a_pod_group(cluster: Cluster) -> None:
    """Let a group wait; a real server has PodGroups only behind a feature gate."""
    if cluster.own is None:
        return
    path = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
    await cluster.post(path, {"metadata": {"name": "train"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}})
    await cluster.add_pod("member", "[{},{}]", schedulingGroup={"podGroupName": "train"})
    await cluster.until(f"{path}/train", lambda shown: shown.get("status", {}).get("conditions"))


async def _prepare_volumes(cluster: Cluster) -> None:
    """Let a pod have a volume that is there, and one that is made for it; both answers are lost."""
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    for name, provisioner in (("there", "kubernetes.io/no-provisioner"), ("made", "csi.example")):
        kind = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        await cluster.post(f"{_STORAGE}/storageclasses", kind)
        spec = {"storageClassName": name, "accessModes": modes, "resources": {"requests": size}}
        await cluster.post(_CLAIMS, {"metadata": {"name": name}, "spec": spec})
    spec = {"storageClassName": "there", "accessModes": modes, "capacity": size, "hostPath": {"path": "/srv"}}
    await cluster.post(_VOLUMES, {"metadata": {"name": "there"}, "spec": spec})
    # As the volumes' controller does.
    await cluster.patch(f"{_VOLUMES}/there/status", {"status": {"phase": "Available"}})
    for path in ("/persistentvolumes/there$", "/persistentvolumeclaims/made$") if cluster.own else ():
        assert cluster.own is not None
        cluster.own.faults.plan(Fault("PATCH", path, "drop_after"))
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("there", "made")]
    await cluster.add_pod("stores", "[]", volumes=volumes)
    await cluster.until(f"{_VOLUMES}/there", lambda volume: "claimRef" in volume["spec"])
    selected = "volume.kubernetes.io/selected-node"
    await cluster.until(f"{_CLAIMS}/made", lambda claim: selected in claim["metadata"].get("annotations", {}))
    for asked in (
        Attributes("get", "", "persistentvolumes", "", "there"),
        Attributes("get", "", _CLAIM, "default", "made"),
    ):
        await cluster.seen(asked)


def _is_going(pods: Any) -> bool:
    return all("deletionTimestamp" in pod["metadata"] for pod in pods["items"])


def _is_told(pod: Any) -> bool:
    return any(one["type"] == "PodScheduled" for one in pod["status"].get("conditions", ()))


def _tells(events: Any, part: str, count: int) -> bool:
    return any(
        one["reason"] == "FailedScheduling" and part in one["message"] and one["count"] == count
        for one in events["items"]
    )


async def test_the_extender_reads_claims_under_its_rights_and_needs_each(cluster: Cluster, tmp_path: Path) -> None:
    """A claim, and the ResourceSlices that say where its devices lie."""
    claims = Claims(cluster.admin)
    await claims.remove()
    await claims.publish("n1", {"gpu-0": "pci0000:15"})
    await claims.claim("c")
    await claims.allocate("c", "n1", "gpu-0")
    pod = {"metadata": {"name": "a", "namespace": "default", "uid": "1"}, "spec": claiming("c")}
    async with cluster.acting(EXTENDER, tmp_path) as client:
        found = await read_claimed_devices(client, msgspec.convert(pod, Pod))
    assert found == ClaimedDevices("claim 'c'", "n1", (frozenset({"pci0000:15"}),))
    if cluster.own is not None and (authorizer := cluster.own.authorizer) is not None:
        assert authorizer.refused == {}
        idle = unneeded(EXTENDER.rights(), authorizer.asked(EXTENDER.user))
        assert [right for right in idle if right.group == "resource.k8s.io"] == []
    await claims.remove()


async def test_the_advertiser_runs_under_its_rights_and_needs_each(cluster: Cluster, tmp_path: Path) -> None:
    """It publishes inventory, extended resources and the node's condition, and writes events on a pod and the node."""
    build(tmp_path / "sys", describe_host("n1", 1, vfs=4))
    (tmp_path / "offer.yaml").write_text("{v: 1, pfs: [{}], resources: [rdma-sriov/vf]}")
    await cluster.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    await _lose_a_vf(cluster, tmp_path)
    check = NodeCheck(datetime.now(UTC), "runtime", "config.yaml: the kubelet is configured with …")
    write_shared(tmp_path / "run" / node_check.NAME, dump_node_check(check))
    folders = [f"--{name}={tmp_path / name}" for name in ("state", "run")]
    flags = [flag for flag in ADVERTISER.arguments(NODE_NAME="n1") if not flag.startswith("--getpfs-addr")]
    host = [f"--sysfs={tmp_path / 'sys'}", f"--offer={tmp_path / 'offer.yaml'}", "--getpfs-addr=", "--resync=0.2"]
    access = ("--kubeconfig", str(tmp_path / "advertiser"))
    acting = cluster.acting(ADVERTISER, tmp_path, kind="Node", name="n1")
    async with acting, running("advertiser", *flags, *folders, *host, *access):
        await cluster.until("/api/v1/nodes/n1", lambda node: names.INVENTORY in node["metadata"].get("annotations", {}))
        await cluster.until("/api/v1/nodes/n1", lambda node: "rdma-sriov/vf" in node["status"].get("capacity", {}))
        reasons = {"VfLost", "KubeletPastShim"}
        await cluster.until(EVENTS, lambda events: reasons <= {one["reason"] for one in events["items"]})
        await cluster.until("/api/v1/nodes/n1", _says_that_the_shim_is_bypassed)
    if cluster.own is not None and (authorizer := cluster.own.authorizer) is not None:
        assert authorizer.refused == {}
        assert unneeded(ADVERTISER.rights(), authorizer.asked(ADVERTISER.user)) == []


def _says_that_the_shim_is_bypassed(node: Any) -> bool:
    conditions = node["status"].get("conditions", ())
    return any((one["type"], one["status"]) == (TYPE, "True") for one in conditions)


async def _lose_a_vf(cluster: Cluster, folder: Path) -> None:
    """Bind a pod with a VF that the ledger has as held by it, though it is in the host."""
    await cluster.add_pod("holder", "[{}]")
    uid = (await cluster.get(f"{PODS}/holder"))["metadata"]["uid"]
    settings = VfSettings()
    assignment = Assignment(uid, "n1", (AssignedVf("enp4s0f0", 1, _VF, "ethernet", "default", settings),))
    metadata = {"name": "holder", "annotations": {names.ASSIGNMENT: dump_assignment(assignment)}}
    binding = {"metadata": metadata, "target": {"kind": "Node", "name": "n1"}}
    async with cluster.acting(SCHEDULER, folder) as scheduler:
        await scheduler.request("POST", f"{PODS}/holder/binding", msgspec.json.encode(binding))
    entry = LedgerEntry(
        pci=_VF,
        pf="enp4s0f0",
        vf=1,
        phase="held",
        boot=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        uid=uid,
        pod="default/holder",
        container="c",
        ifname="net1",
        netns=Netns("/n", 1),
        original=Original(),
    )
    Records(folder / "state", folder / "run").write_pod(PodRecord("default/holder", assignment))
    write_file(folder / "state" / ledger_name(_VF), dump_ledger_entry(entry))


@pytest.mark.apiserver
async def test_the_token_of_a_pod_opens_its_own_node_to_the_advertiser(tmp_path: Path, guarded_server: Path) -> None:
    """A DaemonSet's pod has such a token: it is bound to the pod and names the pod's node.

    No other node may be written.
    """
    async with behind_the_guard(guarded_server), Client(load_access(str(guarded_server))) as admin:
        cluster = Cluster(admin, guarded_server)
        await ADVERTISER.install(admin)
        for name in ("n1", "n2"):
            await cluster.post("/api/v1/nodes", {"metadata": {"name": name}})
        spec = {
            "nodeName": "n1",
            "serviceAccountName": "mooring-advertiser",
            "containers": [{"name": "c", "image": "i"}],
        }
        path = f"/api/v1/namespaces/{ADVERTISER.namespace}/pods"
        await cluster.post(path, {"metadata": {"name": "a"}, "spec": {**spec, "automountServiceAccountToken": False}})
        async with cluster.acting(ADVERTISER, tmp_path, kind="Pod", apiVersion="v1", name="a") as advertiser:
            await patch_inventory(advertiser, "n1", "{}")
            with pytest.raises(Refused, match="token is bound to node 'n1', and it writes no other"):
                await patch_inventory(advertiser, "n2", "{}")
        await admin.request("DELETE", path, params={"gracePeriodSeconds": "0"})
        await _emptied(admin)


@pytest.mark.apiserver
@pytest.mark.recent_kubectl
async def test_pod_security_keeps_pods_with_rights_on_their_node_out_of_the_schedulers_namespace(
    guarded_server: Path,
) -> None:
    """The scheduler's pods are `restricted` with each component, and the advertiser's are not let in beside them.

    This API server runs without --allow-privileged, so the node installer is not created.
    """
    documents = render([name for name in COMPONENTS if name != "node-installer"])
    spaces = {one["metadata"]["name"]: one["metadata"]["labels"] for one in documents if one["kind"] == "Namespace"}
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"] | {"automountServiceAccountToken": False}
        for one in documents
        if one["kind"] in ("Deployment", "DaemonSet")
    }
    async with Client(load_access(str(guarded_server))) as admin:
        for namespace, labels in spaces.items():
            # The same labels for a namespace of the test's own: others' tests have pods in these.
            await put(admin, "/api/v1/namespaces", {"metadata": {"name": f"secured-{namespace}", "labels": labels}})
        for namespace, name in itertools.product(spaces, pods):
            await put(admin, f"/api/v1/namespaces/secured-{namespace}/serviceaccounts", {"metadata": {"name": name}})
            path = f"/api/v1/namespaces/secured-{namespace}/pods"
            pod = msgspec.json.encode({"metadata": {"name": name}, "spec": pods[name]})
            dry = admin.request("POST", path, pod, params={"dryRun": "All"})
            if namespace == NODE_NAMESPACE or name == "mooring-scheduler":
                await dry
            else:
                with pytest.raises(Refused, match='violates PodSecurity "restricted:latest"'):
                    await dry


@pytest.mark.apiserver
async def test_what_the_scheduler_asks_for_goes_by_its_flow_schemas(tmp_path: Path, guarded_server: Path) -> None:
    """The Lease with leader election's own seats, the rest before workloads: the server reports the matching schema."""
    async with Client(load_access(str(guarded_server))) as admin:
        await SCHEDULER.install(admin)
        await SCHEDULER.log_in(admin, guarded_server, tmp_path / "scheduler")
        flows = {one["metadata"]["name"]: one for one in raw("base/flow/leader-election.yaml") + raw(_FLOW)}
        for document in flows.values():
            await put(admin, _FLOWS, document)
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/mooring-scheduler"
        access = load_access(str(tmp_path / "scheduler"))
        async with aiohttp.ClientSession(headers=access.headers()) as session, asyncio.timeout(90):
            for name, path in (("mooring-leader-election", lease), ("mooring-scheduler", "/api/v1/nodes?limit=1")):
                uid = msgspec.json.decode(await admin.request("GET", f"{_FLOWS}/{name}"))["metadata"]["uid"]
                used = ""
                # A new schema is taken into account a moment later.
                while used != uid:
                    async with session.get(access.server + path, ssl=access.tls or True) as answer:
                        used = answer.headers["X-Kubernetes-PF-FlowSchema-UID"]
