"""A machine with storage around it, fed with events as by the watches."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from mooring.kube.events import Changed, Identity, Removed
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, PreBind, PreBindResult, Report
from scheduler.kube.objects import Node, Pod
from scheduler.kube.storage_objects import (
    BIND_COMPLETED,
    SELECTED_NODE,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from scheduler.state.machine import Machine
from tests.scheduler.reference.messages import refusal

Json = dict[str, Any]
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def on(key: str, *values: str) -> Json:
    """Return a volume's node affinity: the label has one of these values."""
    expressions = [{"key": key, "operator": "In", "values": list(values)}]
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


class Store:
    """Objects as the API has them, each change a new version that the machine sees; time goes by `now`."""

    def __init__(self, make_node: Callable[..., Node], make_pod: Callable[..., Pod]) -> None:
        self.machine = Machine("mooring")
        self.make_node, self.make_pod = make_node, make_pod
        self.now = 0.0
        self._version = 0

    def nodes(self, *names: str, **labels: str) -> None:
        for name in names:
            node = self.make_node(name, labels={HOST: name, **labels})
            self.machine.nodes(Changed(Identity(name), node), self.now)

    def tell(self, kind: type[Any], document: Json) -> Any:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        item = msgspec.convert(document, kind)
        meta = item.metadata
        self.machine.handle(kind, Changed(Identity(meta.name, meta.namespace, meta.uid), item), self.now)
        return item

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

    def limit(self, node: str, count: int, driver: str = "csi.x") -> None:
        drivers = [{"name": driver, "allocatable": {"count": count}}]
        self.tell(CSINode, {"metadata": {"name": node}, "spec": {"drivers": drivers}})

    def attach(self, node: str, volume: str) -> None:
        source = {"persistentVolumeName": volume}
        spec = {"attacher": "csi.x", "nodeName": node, "source": source}
        self.tell(VolumeAttachment, {"metadata": {"name": f"a-{node}-{volume}"}, "spec": spec})

    def gone(self, kind: type[Any], name: str) -> None:
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
        self.show(pod)
        return pod

    def show(self, pod: Pod) -> None:
        self.machine.pods(Changed(Identity(pod.metadata.name, "default", pod.metadata.uid), pod), self.now)

    def run(self) -> list[Instruction]:
        """Do what is due and decide about everything that is ready; return all instructions."""
        found = self.machine.tick(self.now)
        while (instructions := self.machine.step(self.now)) is not None:
            found += instructions
            found += self.machine.tick(self.now)
        return found

    def message(self) -> str:
        """Run, and return the reason in the only report of a pending pod."""
        (message,) = [one.message for one in self.run() if isinstance(one, Report)]
        return refusal(message)

    def choose(self) -> str:
        """Run, and return the node that the only pod gets at once."""
        (bind,) = [one for one in self.run() if isinstance(one, Bind)]
        return bind.assigned.node

    def outcome(self) -> str:
        """Run, and return what becomes of the only pod: why it waits, or its node and the volumes that claims get."""
        (outcome,) = [one for one in self.run() if isinstance(one, Bind | PreBind | Report)]
        if isinstance(outcome, Report):
            return refusal(outcome.message).partition(" nodes are available: ")[2]
        if isinstance(outcome, Bind):
            return outcome.assigned.node
        matches = [f"{one.claim.metadata.name}={one.volume.metadata.name}" for one in outcome.plan.matches]
        provisions = [f"{one.claim.metadata.name}=new" for one in outcome.plan.provisions]
        return " ".join((outcome.plan.node, *sorted(matches), *provisions))

    def pre_filter(self) -> PreBind:
        """Run, and return the only PreBind."""
        (order,) = self.run()
        assert isinstance(order, PreBind)
        return order

    def prepared(self, order: PreBind, fault: str = "", **versions: str) -> None:
        self.machine.finished(order, PreBindResult(versions, fault), self.now)


def pre_binds(instructions: Iterable[Instruction]) -> list[PreBind]:
    return [one for one in instructions if isinstance(one, PreBind)]


def messages(instructions: Iterable[Instruction]) -> set[str]:
    return {one.message for one in instructions if isinstance(one, Report)}
