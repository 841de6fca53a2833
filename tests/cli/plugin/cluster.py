"""A cluster as the commands read it: values for the pure reports, and an API server that holds the same."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from cli.__main__ import main
from cli.plugin.reports.objects import Node, Pod
from devcluster.apiserver.serve import ApiServer, Options
from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.inventory import Inventory, Pf, dump_inventory
from mooring.indexes import Indexes
from mooring.kube.access import load_access
from mooring.kube.client import MERGE_PATCH, Client
from mooring.nic.settings import VfSettings

Json = dict[str, Any]
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
LEASES_OF_SYSTEM = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
BOOT = "boot-1"
PROGRAMS = {"mooring-advertiser": "0.2.0", "mooring-cni": "0.2.0", "mooring-cri-shim": "0.2.0"}


def pf(index: int = 0, vfs: int = 4, **fields: Any) -> Pf:
    """Make a PF of 100 Gb/s, of which 90 are offered."""
    values: Json = {
        "name": f"pf{index}",
        "pci": f"0000:{index + 4:02x}:00.0",
        "link": "ethernet",
        "network": f"rail{index}",
        "mbps": 100_000,
        "offer_mbps": 90_000,
        "up": True,
        "vfs": Indexes.of(range(vfs)),
        "vf0": f"0000:{index + 4:02x}:00.2",
        "can": frozenset({"min_tx_rate", "max_tx_rate"}),
    }
    return Pf(**(values | fields))


def node(name: str, pfs: Sequence[Pf] = (), **fields: Any) -> Json:
    """Make a Ready node of this boot, with an inventory if it has PFs."""
    inventory = Inventory(fields.get("boot", BOOT), tuple(pfs), fields.get("programs", PROGRAMS))
    text = fields.get("inventory", dump_inventory(inventory) if pfs else None)
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name},
            "annotations": {names.INVENTORY: text} if text is not None else {},
        },
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True" if fields.get("ready", True) else "False"}],
            "nodeInfo": {"bootID": BOOT},
        },
    }


def pod(name: str, request: str | None = None, **fields: Any) -> Json:
    """Make a pod for Mooring's scheduler, of one container."""
    annotations = ({names.REQUEST: request} if request is not None else {}) | fields.get("annotations", {})
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations}
    spec = {"schedulerName": "mooring", "containers": [{"name": "c", "image": "i"}]} | fields.get("spec", {})
    labels = {"labels": fields["labels"]} if "labels" in fields else {}
    return {"metadata": metadata | labels, "spec": spec, "status": fields.get("status", {"phase": "Pending"})}


def given(uid: str, on: str, *vfs: tuple[Pf, int, int]) -> str:
    """Return the assignment of these VFs, each as PF, index and reserved Mb/s."""
    entries = tuple(
        AssignedVf(of.name, index, of.vf_pci(index), of.link, of.network, VfSettings(rate or None))
        for of, index, rate in vfs
    )
    return dump_assignment(Assignment(uid, on, entries))


def bound(name: str, on: str, *vfs: tuple[Pf, int, int], **fields: Any) -> Json:
    """Make a running pod that holds VFs."""
    annotations = {names.ASSIGNMENT: given(f"uid-{name}", on, *vfs)}
    status = {"phase": "Running"}
    return pod(name, "[{}]", annotations=annotations, spec={"nodeName": on}, status=status, **fields)


def as_nodes(*documents: Json) -> list[Node]:
    return [msgspec.convert(one, Node) for one in documents]


def as_pods(*documents: Json) -> list[Pod]:
    return [msgspec.convert(one, Pod) for one in documents]


@dataclass(frozen=True, slots=True)
class Served:
    """An API server, and the ways in which a test fills and reads it."""

    server: ApiServer
    client: Client
    kubeconfig: Path
    said: Callable[[], Sequence[str]]

    async def run(self, *argv: str) -> tuple[int, str, str]:
        """Run `kubectl mooring`; return its status and what it wrote to stdout and stderr."""
        where = () if argv[0] == "lint" else ("--kubeconfig", str(self.kubeconfig))
        status = await asyncio.to_thread(main, [*argv, *where])
        out, err = self.said()
        return status, out, err

    async def run_alone(self, *argv: str) -> tuple[int, str, str]:
        """Run it without a cluster."""
        status = await asyncio.to_thread(main, argv)
        out, err = self.said()
        return status, out, err

    async def add_node(self, document: Json) -> None:
        path = f"/api/v1/nodes/{document['metadata']['name']}"
        await self.post("/api/v1/nodes", {"metadata": document["metadata"]})
        await self.patch(path, {"spec": {"taints": None}})
        await self.patch(f"{path}/status", {"status": document["status"]})

    async def add_pod(self, document: Json) -> str:
        """Create a pod as it is, bound if it has a node; return its uid, which the server chooses."""
        node = document["spec"].get("nodeName")
        annotations = dict(document["metadata"]["annotations"])
        assignment = annotations.pop(names.ASSIGNMENT, None)
        metadata = {key: value for key, value in document["metadata"].items() if key != "uid"}
        spec = {key: value for key, value in document["spec"].items() if key != "nodeName"}
        made = await self.post(
            "/api/v1/namespaces/default/pods", {"metadata": metadata | {"annotations": annotations}, "spec": spec}
        )
        uid, path = made["metadata"]["uid"], f"/api/v1/namespaces/default/pods/{metadata['name']}"
        if node:
            texts = {names.ASSIGNMENT: assignment.replace(document["metadata"]["uid"], uid)} if assignment else {}
            about = {"name": metadata["name"], "annotations": texts}
            await self.post(f"{path}/binding", {"metadata": about, "target": {"kind": "Node", "name": node}})
        await self.patch(f"{path}/status", {"status": document["status"]})
        return str(uid)

    async def lead(self, age_s: float = 0.0, holder: str = "s-1") -> None:
        """Write the Lease of a scheduler that renewed it so many seconds ago."""
        renewed = datetime.fromtimestamp(time.time() - age_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
        metadata = {"name": "mooring-scheduler", "namespace": "kube-system"}
        await self.post(LEASES_OF_SYSTEM, {"metadata": metadata, "spec": spec})

    async def restrict(self, *resources: str, verbs: Sequence[str] = ("list",), rules: Sequence[Json] = ()) -> None:
        """Run the command from now on as an account that may only do this with these."""
        role = {"rules": [{"apiGroups": [""], "resources": resources, "verbs": verbs}, *rules]}
        await self.post(f"{_RBAC}/clusterroles", {"metadata": {"name": "reader"}, **role})
        account = {"kind": "ServiceAccount", "name": "person", "namespace": "default"}
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
        binding = {"metadata": {"name": "reader"}, "roleRef": ref, "subjects": [account]}
        await self.post(f"{_RBAC}/clusterrolebindings", binding)
        await self.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "person"}})
        asked = await self.post("/api/v1/namespaces/default/serviceaccounts/person/token", {"spec": {}})
        config = json.loads(self.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": asked["status"]["token"]}
        self.kubeconfig.write_text(json.dumps(config))

    async def post(self, path: str, document: Json) -> Json:
        made: Json = msgspec.json.decode(await self.client.request("POST", path, msgspec.json.encode(document)))
        return made

    async def patch(self, path: str, document: Json) -> None:
        await self.client.request("PATCH", path, msgspec.json.encode(document), MERGE_PATCH)


@asynccontextmanager
async def serving(folder: Path, said: Callable[[], Sequence[str]], *, rbac: bool = False) -> AsyncIterator[Served]:
    """Serve an empty cluster."""
    kubeconfig = folder / "kubeconfig"
    async with ApiServer(Options(rbac=rbac)) as server:
        kubeconfig.write_text(server.kubeconfig_text())
        async with Client(load_access(str(kubeconfig))) as client:
            yield Served(server, client, kubeconfig, said)


def waiting(reason: str, message: str) -> dict[str, object]:
    """Return the status of a pod that was not scheduled."""
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"phase": "Pending", "conditions": [condition]}
