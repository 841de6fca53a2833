"""The simulated cluster: pods and nodes as the API keeps them, and the actors that create and change them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, read_assignment
from mooring.annotations.inventory import HELD_BY, Inventory, Out, Pf, dump_inventory
from mooring.errors import AnnotationError
from mooring.indexes import Indexes
from tests.scheduler.decisions.documents import node_status, pf
from tests.scheduler.simulation.api import MERGE, Api, ApiObject, Json

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
# Above all other pods, the second of them above the first.
CLASSES = ("system-cluster-critical", "system-node-critical")
_OWNED = {"owned": "yes"}
_REPLICA_SET = {"apiVersion": "v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
OFFER_MBPS = 90_000
VFS = (3, 2)
RACK = "topology.kubernetes.io/rack"
CPUS = 8
# Each node has these boxes, a kind of resources as a plug-in package would add it.
BOXES = ("b0", "b1", "b2")
_BOX_REQUEST, _BOX_INVENTORY = names.REQUEST_OF + "box", names.INVENTORY_OF + "box"


def rack_of(node: str) -> str:
    """Return the rack of a node: the first two share one."""
    return "b" if node == "n3" else "a"


@dataclass(frozen=True)
class PodState(ApiObject):
    """A pod at one version, with its assignment if that is to be believed."""

    claim: Assignment | None = None

    @property
    def node(self) -> str:
        return str(self.document["spec"].get("nodeName") or "")

    @property
    def phase(self) -> str:
        return str(self.document["status"].get("phase"))

    @property
    def is_ours(self) -> bool:
        return bool(self.document["spec"]["schedulerName"] == "mooring")

    @property
    def priority(self) -> int:
        return int(self.document["spec"].get("priority") or 0)

    @property
    def is_gated(self) -> bool:
        return bool(self.document["spec"].get("schedulingGates"))

    @property
    def is_waiting(self) -> bool:
        return not (self.node or self.is_gated or self.is_going)

    @property
    def is_live(self) -> bool:
        return bool(self.node) and self.phase not in ("Succeeded", "Failed")

    @property
    def vfs(self) -> tuple[AssignedVf, ...]:
        return self.claim.vfs if self.claim else ()

    @property
    def units(self) -> tuple[str, ...]:
        section: Any = self.claim.ext.get("box", {}) if self.claim else {}
        return tuple(section.get("units", ()))

    @property
    def wanted_units(self) -> int:
        return int(self.annotations.get(_BOX_REQUEST, "0"))

    @property
    def claims(self) -> list[str]:
        """Return the names of the PersistentVolumeClaims that it uses."""
        volumes = self.document["spec"].get("volumes") or ()
        return [one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one]

    def condition(self, kind: str) -> Json:
        """Return the condition of a type; empty if there is none."""
        conditions: list[Json] = self.document["status"].get("conditions") or []
        return next((one for one in conditions if one["type"] == kind), {})

    @property
    def message(self) -> str:
        """Return why it waits."""
        return str(self.condition("PodScheduled").get("message", ""))

    @property
    def cpu(self) -> int:
        """Return its request in thousandths."""
        text: str = self.document["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        return int(text[:-1]) if text.endswith("m") else 1000 * int(text)

    @property
    def held(self) -> set[str]:
        """Return what no other pod on its node may have: VFs by PCI address, and units."""
        return {vf.pci for vf in self.vfs} | set(self.units)


@dataclass
class Hardware:
    """A node's NIC and boot as they are, whatever the API knows of them; two PFs, each on its own rail.

    With ``shares_port`` both are on one cable.
    """

    boot: str = "boot-1"
    shares_port: bool = False
    # Whether the inventory says that the node changes rates of running pods.
    rates: bool = False
    up: list[bool] = field(default_factory=lambda: [True, True])
    offer_mbps: list[int] = field(default_factory=lambda: [OFFER_MBPS, OFFER_MBPS])
    out: list[set[int]] = field(default_factory=lambda: [set(), set()])
    # VFs, by PF and index, that were not released: the uid of their pod, and the rate that they still reserve.
    held: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)

    def inventory(self) -> Inventory:
        return Inventory(self.boot, tuple(self._pf(index) for index in range(2)), rates=self.rates)

    def _pf(self, index: int) -> Pf:
        held = {vf: whose for (pf, vf), whose in sorted(self.held.items()) if pf == f"pf{index}"}
        out = tuple(Out(Indexes.of([vf]), f"{HELD_BY}{uid}", rate) for vf, (uid, rate) in held.items())
        if elsewhere := self.out[index] - held.keys():
            out = (Out(Indexes.of(elsewhere), "bound to vfio-pci"), *out)
        state = {"offer_mbps": self.offer_mbps[index], "up": self.up[index], "out": out}
        can = frozenset({"min_tx_rate", "max_tx_rate"})
        return pf(index, VFS[index], can=can, pcie=(), port="cable" if self.shares_port else None, **state)


def cable_of(inventory: Inventory, pf: Pf) -> list[Pf]:
    """Return the PFs that share a PF's cable, itself included."""
    return [other for other in inventory.pfs if other == pf or (pf.port is not None and other.port == pf.port)]


class Cluster:
    """The truth, as the API server has it, and the actors that change it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._read: dict[str, tuple[int, PodState]] = {}
        self._serial = 0
        # Most pods declare a run time.
        self.declares_runs = False

    def pods(self) -> list[PodState]:
        """Return all pods in the order of their names."""
        entries = self._api.cluster.store.collection(("", "pods")).ordered()
        self._read = {entry.uid: self._state(entry) for entry in entries}
        return [state for _, state in self._read.values()]

    def _state(self, entry: Any) -> tuple[int, PodState]:
        known = self._read.get(entry.uid)
        if known is not None and known[0] == entry.revision:
            return known
        pod = PodState(entry.decoded())
        try:
            claim = read_assignment(pod.annotations[names.ASSIGNMENT])
        except (KeyError, AnnotationError):
            return entry.revision, pod
        believed = (claim.uid, claim.node) == (entry.uid, pod.node)
        return entry.revision, replace(pod, claim=claim) if believed else pod

    def pod(self, uid: str) -> PodState | None:
        return next((pod for pod in self.pods() if pod.uid == uid), None)

    def live(self) -> Iterator[PodState]:
        """Yield the pods that are assigned to a node and have not ended."""
        yield from (pod for pod in self.pods() if pod.is_live)

    def nodes(self) -> dict[str, Json]:
        return self._api.objects("", "nodes")

    def create_pod(self, request: str | None, **more: Any) -> PodState:
        """Create a pod of our scheduler, or of the one that ``spec`` names."""
        self._serial += 1
        annotations = ({} if request is None else {names.REQUEST: request}) | more.get("annotations", {})
        if self.declares_runs and self._serial % 4:
            # Pods end when chance says so: before that or after it.
            annotations[names.RUNS] = f"{(7 * self._serial) % 120 + 5}s"
        annotations |= {_BOX_REQUEST: str(more["units"])} if more.get("units") else {}
        resources = {"requests": {"cpu": more.get("cpu", "100m")}}
        if more.get("spec", {}).get("schedulerName") == "default-scheduler":
            # kube-scheduler sends a pod to its extender only if a container names a managed resource.
            resources["limits"] = {names.RIT_DEVICES: "1"}
        container = {"name": "c", "image": "i", "resources": resources}
        owner = _REPLICA_SET if more.get("owned") else more.get("owner")
        metadata = {
            "name": f"p{self._serial}",
            "annotations": annotations,
            "labels": (_OWNED if more.get("owned") else {}) | more.get("labels", {}),
            "ownerReferences": [owner] if owner else [],
        }
        spec = {"schedulerName": "mooring", "containers": [container], **more.get("spec", {})}
        return PodState(self._api.call("POST", PODS, {"metadata": metadata, "spec": spec}))

    def put_budget(self, allowed: int | None) -> None:
        """Set how many of a ReplicaSet's pods may be disrupted; None deletes the budget."""
        if self._api.objects("policy", "poddisruptionbudgets"):
            self._api.call("DELETE", f"{BUDGETS}/owned")
        if allowed is not None:
            spec = {"selector": {"matchLabels": _OWNED}, "minAvailable": 1}
            self._api.call("POST", BUDGETS, {"metadata": {"name": "owned"}, "spec": spec})
            self._api.call("PATCH", f"{BUDGETS}/owned/status", {"status": {"disruptionsAllowed": allowed}}, MERGE)

    def now(self) -> str:
        return self._api.cluster.now()

    def patch_pod(self, name: str, patch: Json, subresource: str = "") -> None:
        self._api.call("PATCH", f"{PODS}/{name}{subresource}", patch, MERGE)

    def annotate(self, pod: PodState, name: str, text: str | None) -> None:
        self.patch_pod(pod.name, {"metadata": {"annotations": {name: text}}})

    def ungate(self, pod: PodState) -> None:
        self.patch_pod(pod.name, {"spec": {"schedulingGates": None}})

    def delete_pod(self, name: str, grace_s: int | None = None) -> None:
        query = "" if grace_s is None else f"?gracePeriodSeconds={grace_s}"
        self._api.call("DELETE", f"{PODS}/{name}{query}")

    def bind_elsewhere(self, pod: PodState, node: str) -> None:
        """Bind as another scheduler would, without an assignment."""
        target = {"kind": "Node", "name": node}
        self._api.call("POST", f"{PODS}/{pod.name}/binding", {"metadata": {"name": pod.name}, "target": target})

    def put_node(self, name: str, hardware: Hardware, *, ready: bool = True, kernel_boot: str = "") -> None:
        """Create a node, or update the API's knowledge of it."""
        if name not in self.nodes():
            labels = {"kubernetes.io/hostname": name, RACK: rack_of(name)}
            self._api.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
            self.patch_node(name, {"spec": {"taints": None}})
        inventories = {names.INVENTORY: dump_inventory(hardware.inventory()), _BOX_INVENTORY: " ".join(BOXES)}
        self.patch_node(name, {"metadata": {"annotations": inventories}})
        status = node_status({"cpu": str(CPUS)}, ready=ready, boot=kernel_boot or hardware.boot)
        self.patch_node(name, {"status": status}, "/status")

    def patch_node(self, name: str, patch: Json, subresource: str = "") -> None:
        self._api.call("PATCH", f"/api/v1/nodes/{name}{subresource}", patch, MERGE)

    def delete_node(self, name: str) -> None:
        self._api.call("DELETE", f"/api/v1/nodes/{name}")

    def events(self, *reasons: str) -> list[Json]:
        listed = self._api.call("GET", "/api/v1/namespaces/default/events")
        return [one for one in listed["items"] if one["reason"] in reasons]
