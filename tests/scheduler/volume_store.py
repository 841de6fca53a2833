"""A machine with storage around it, fed with events as by the watches."""

from collections.abc import Iterable
from typing import Any

from mooring.annotations.inventory import Pf
from mooring.kube.events import Identity, Removed, Synced
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, PreBind, PreBindResult, Report
from scheduler.kube.objects import Pod
from scheduler.kube.storage_objects import (
    BIND_COMPLETED,
    SELECTED_NODE,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from tests.scheduler.group_life import Life, changed, show_object, victims
from tests.scheduler.reference.messages import refusal

Json = dict[str, Any]
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def on(key: str, *values: str) -> Json:
    """Return a volume's node affinity: the label has one of these values."""
    expressions = [{"key": key, "operator": "In", "values": list(values)}]
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


class Store(Life):
    """A machine and the objects of storage as the API has them, each change a new version."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._version = 0
        self.order: PreBind | None = None

    def show_node(self, name: str, *pfs: Pf, **fields: Any) -> list[Instruction]:
        return super().show_node(name, *pfs, **fields | {"labels": {HOST: name, **fields.get("labels", {})}})

    def tell(self, kind: type[Any], document: Json) -> Any:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        return show_object(self.machine, kind, document, self.now)

    def storage_class(self, name: str = "late", provisioner: str = "csi.x", **fields: Any) -> None:
        mode = fields.pop("mode", "WaitForFirstConsumer")
        document = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, **fields}
        self.tell(StorageClass, document)

    def claim(self, name: str, volume: str = "", **fields: Any) -> PersistentVolumeClaim:
        """Create or change a claim of class late for 1 Gi; with a volume it is bound to that."""
        annotations = {BIND_COMPLETED: "yes"} if volume else {}
        if fields.get("selected"):
            annotations[SELECTED_NODE] = fields["selected"]
        metadata = {"name": name, "namespace": "default", "uid": fields.get("uid", f"u-{name}")}
        metadata |= {"annotations": annotations, "ownerReferences": fields.get("owners", [])}
        if fields.get("going"):
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        spec = {
            "storageClassName": fields.get("of", "late"),
            "resources": {"requests": {"storage": fields.get("size", "1Gi")}},
            "accessModes": fields.get("modes", ["ReadWriteOnce"]),
            "volumeName": volume,
            **fields.get("spec", {}),
        }
        document = {"metadata": metadata, "spec": spec, "status": {"phase": fields.get("phase", "Pending")}}
        claim: PersistentVolumeClaim = self.tell(PersistentVolumeClaim, document)
        return claim

    def volume(self, name: str, **fields: Any) -> PersistentVolume:
        """Create or change a volume of class late with 1 Gi, available."""
        spec = {
            "storageClassName": fields.get("of", "late"),
            "capacity": {"storage": fields.get("size", "1Gi")},
            "accessModes": ["ReadWriteOnce"],
            "nodeAffinity": fields.get("where"),
            "claimRef": fields.get("claim"),
            "csi": {"driver": "csi.x", "volumeHandle": name},
            **fields.get("spec", {}),
        }
        metadata = {"name": name, "uid": f"u-{name}", "labels": fields.get("labels", {})}
        document = {"metadata": metadata, "spec": spec, "status": {"phase": fields.get("phase", "Available")}}
        volume: PersistentVolume = self.tell(PersistentVolume, document)
        return volume

    def remove(self, kind: type[Any], name: str) -> None:
        namespaces: dict[type[Any], str] = {PersistentVolumeClaim: "default", CSIStorageCapacity: "kube-system"}
        namespace = namespaces.get(kind, "")
        self.machine.handle(kind, Removed(Identity(name, namespace)), self.now)

    def pod(self, *claims: str, node: str | None = None, **fields: Any) -> Pod:
        """Show a pod that uses claims; with a node it is bound."""
        volumes = [
            {"name": f"v{index}", "persistentVolumeClaim": {"claimName": one}} for index, one in enumerate(claims)
        ]
        spec = {"volumes": volumes, **fields.pop("spec", {})}
        pod = self.make_pod(node=node, spec=spec, **fields)
        self.see(pod)
        return pod

    def outcome(self) -> str:
        """Run, and return what becomes of a pod: why it waits, or its node and the volumes that claims get."""
        instructions = self.work()
        if not instructions:
            return ""
        (outcome,) = [one for one in instructions if isinstance(one, Bind | PreBind | Report)]
        if isinstance(outcome, Report):
            message, _, reasons = refusal(outcome.message).partition(" nodes are available: ")
            return reasons or message
        if isinstance(outcome, Bind):
            return outcome.assigned.node
        self.order = outcome
        matches = [f"{one.claim.metadata.name}={one.volume.metadata.name}" for one in outcome.plan.matches]
        provisions = [f"{one.claim.metadata.name}=new" for one in outcome.plan.provisions]
        return " ".join((outcome.plan.node, *sorted(matches), *provisions))

    def prepared(self, order: PreBind, fault: str = "", **versions: str) -> None:
        self.machine.finished(order, PreBindResult(versions, fault), self.now)


def pre_binds(instructions: Iterable[Instruction]) -> list[PreBind]:
    return [one for one in instructions if isinstance(one, PreBind)]


def messages(instructions: Iterable[Instruction]) -> set[str]:
    return {one.message for one in instructions if isinstance(one, Report)}


class VolumeStory:
    """What happens to volumes, claims and the pods that use them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.pods: dict[str, Pod] = {}

    def nodes(self, *names: str, **labels: str) -> None:
        self.store.nodes(*names, labels={ZONE if key == "zone" else key: value for key, value in labels.items()})

    def by_hand(self) -> None:
        """Let no provisioner make volumes."""
        self.store.storage_class("late", "kubernetes.io/no-provisioner")

    def immediate(self, name: str) -> None:
        self.store.storage_class(name, mode="Immediate")

    def zonal(self, zone: str) -> None:
        """Let volumes be made in one zone only."""
        zones = [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}]
        self.store.storage_class("late", allowedTopologies=zones)

    def volume(self, name: str, **fields: str) -> None:
        """Show a volume: ``on=n1,n2`` or ``disk=x`` are nodes that can use it, ``zone`` a label, ``for`` a claim."""
        where = on(HOST, *fields["on"].split(",")) if "on" in fields else None
        where = on("disk", fields["disk"]) if "disk" in fields else where
        labels = {ZONE: fields["zone"]} if "zone" in fields else {}
        own = fields.get("for")
        claim = {"namespace": "default", "name": own, "uid": f"u-{own}"} if own else None
        self.store.volume(name, where=where, labels=labels, claim=claim, size=fields.get("size", "1Gi"))

    def claim(self, name: str, *volumes: str, **fields: str) -> None:
        """Show a claim, perhaps bound to a volume, owned by a pod, or for one pod only (``once``)."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "controller": True}
        owners = [owner | {"uid": self.pods[fields["owner"]].metadata.uid}] if "owner" in fields else []
        modes = ["ReadWriteOncePod" if "once" in volumes else "ReadWriteOnce"]
        size, selected = fields.get("size", "1Gi"), fields.get("selected", "")
        bound = "".join(word for word in volumes if word != "once")
        others: Json = {key: fields[key] for key in ("of", "phase", "uid") if key in fields}
        others |= {"spec": {"volumeName": fields["preset"]}} if "preset" in fields else {}
        going = "deleted" in fields
        self.store.claim(name, bound, owners=owners, modes=modes, size=size, selected=selected, going=going, **others)

    def pod(self, name: str, *claims: str, **fields: str) -> None:
        """Show a pod with claims, or with an ephemeral volume; ``on`` is its node, ``to`` its node selector."""
        spec: Json = {"priority": int(fields.get("priority", "0"))}
        if "cpu" in fields:
            spec["containers"] = [{"name": "c", "resources": {"requests": {"cpu": fields["cpu"]}}}]
        if "to" in fields:
            spec["nodeSelector"] = {HOST: fields["to"]}
        if "ephemeral" in claims:
            claims = ()
            spec["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]
        self.pods[name] = self.store.pod(*claims, node=fields.get("on"), name=name, spec=spec)

    def delete(self, name: str) -> None:
        self.store.gone(self.pods.pop(name))

    def terminate(self, name: str) -> None:
        self.store.see(changed(self.pods[name], metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))

    def answer(self, *faults: str, **versions: str) -> None:
        """Answer the last order: the versions that were written, or why nothing was."""
        assert self.store.order is not None
        self.store.prepared(self.store.order, " ".join(faults), **versions)

    def unlist(self) -> None:
        """Let a list show no volumes."""
        self.store.machine.handle(PersistentVolume, Synced(()), self.store.now)

    def lose_volume(self, volume: str) -> None:
        self.store.remove(PersistentVolume, volume)

    def lose(self, node: str) -> None:
        self.store.remove_node(node)

    def limit(self, node: str, count: str = "") -> None:
        self._drive(node, {"allocatable": {"count": int(count)} if count else {}})

    def driver(self, node: str) -> None:
        self._drive(node, {})

    def _drive(self, node: str, fields: Json) -> None:
        self.store.tell(CSINode, {"metadata": {"name": node}, "spec": {"drivers": [{"name": "csi.x"} | fields]}})

    def attach(self, node: str, volume: str) -> None:
        spec = {"attacher": "csi.x", "nodeName": node, "source": {"persistentVolumeName": volume}}
        self.store.tell(VolumeAttachment, {"metadata": {"name": f"a-{node}-{volume}"}, "spec": spec})

    def detach(self, node: str, volume: str) -> None:
        self.store.remove(VolumeAttachment, f"a-{node}-{volume}")

    def publish(self, state: str = "on") -> None:
        """Let the driver publish its capacity, or not any more."""
        self.store.tell(CSIDriver, {"metadata": {"name": "csi.x"}, "spec": {"storageCapacity": state == "on"}})

    def room(self, node: str, size: str, largest: str = "", **fields: Any) -> None:
        """Let the driver publish its capacity on a node."""
        document: Json = {"metadata": {"name": f"on-{node}", "namespace": "kube-system"}, "storageClassName": "late"}
        document |= {"capacity": size, "nodeTopology": {"matchLabels": {HOST: node}}}
        document |= {"maximumVolumeSize": largest} if largest else {}
        self.store.tell(CSIStorageCapacity, document | fields)

    def no_room(self, node: str) -> None:
        self.store.remove(CSIStorageCapacity, f"on-{node}")

    def later(self, seconds: str) -> None:
        self.store.now += float(seconds)

    def decide(self) -> str:
        return self.store.outcome()

    def waiting(self) -> str:
        """Return how many pods wait for an event."""
        return str(self.store.machine.pending_pods.depths()["unschedulable"])

    def preempt(self) -> str:
        return " ".join(victims(self.store.work()))
