"""Volumes for the nodes and pods of `scheduler_load`: bound claims, volumes to be provisioned, local disks."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from bench.loads import scheduler_load as load
from mooring.kube.events import Changed, Identity
from scheduler.kube.storage_objects import (
    BIND_COMPLETED,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from scheduler.state.machine import Machine

Tell = Callable[[type[Any], load.Json], None]
_DRIVER = "csi.example"
_SIZE = "1Gi"


def teller(machine: Machine, now: float) -> Tell:
    """Return a function that shows a machine a storage object, each with a version of its own."""
    version = 0

    def tell(kind: type[Any], document: load.Json) -> None:
        nonlocal version
        version += 1
        document["metadata"]["resourceVersion"] = str(version)
        item = msgspec.convert(document, kind)
        meta = item.metadata
        machine.handle(kind, Changed(Identity(meta.name, meta.namespace, meta.uid), item), now)

    return tell


def classes(tell: Tell) -> None:
    for name, provisioner in (("made", _DRIVER), ("local", "kubernetes.io/no-provisioner")):
        document = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        tell(StorageClass, document)


def limits(tell: Tell, nodes: int, count: int) -> None:
    """Limit how many volumes each node can attach."""
    for number in range(nodes):
        drivers = [{"name": _DRIVER, "nodeID": "x", "allocatable": {"count": count}}]
        tell(CSINode, {"metadata": {"name": load.node_name(number)}, "spec": {"drivers": drivers}})


def local_disks(tell: Tell, nodes: int) -> None:
    """Put a free disk on each node."""
    for number in range(nodes):
        volume = _volume(f"disk-{number:05}", "local", "kubernetes.io/hostname", load.node_name(number))
        tell(PersistentVolume, volume | {"status": {"phase": "Available"}})


def bound_claims(tell: Tell, count: int) -> None:
    """Make claims ``bound-0`` and on whose volumes are in one zone each."""
    for number in range(count):
        # Every other zone has nodes of all kinds that pods request.
        zone = f"zone-{(2 * number + 1) % load.ZONES}"
        volume = _volume(f"v-{number:05}", "made", "topology.kubernetes.io/zone", zone)
        name = f"bound-{number}"
        volume["spec"]["claimRef"] = {"name": name, "namespace": "default", "uid": f"u-{name}"}
        tell(PersistentVolume, volume | {"status": {"phase": "Bound"}})
        _claim(tell, name, "made", f"v-{number:05}")


def unbound_claims(tell: Tell, count: int, of: str) -> None:
    """Make claims ``made-0`` and on, or ``local-0`` and on, that wait for their first consumer."""
    for number in range(count):
        _claim(tell, f"{of}-{number}", of, "")


def pods(count: int, claims: str) -> Iterator[load.Json]:
    """Yield pods that use a claim of their own each."""
    for number in range(count):
        pod = load.mixed_pod(number)
        pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": f"{claims}-{number}"}}]
        yield pod


def _volume(name: str, of: str, key: str, value: str) -> load.Json:
    expressions = [{"key": key, "operator": "In", "values": [value]}]
    spec = {
        "storageClassName": of,
        "capacity": {"storage": _SIZE},
        "accessModes": ["ReadWriteOnce"],
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}},
        "csi": {"driver": _DRIVER, "volumeHandle": name},
    }
    return {"metadata": {"name": name, "uid": f"u-{name}"}, "spec": spec}


def _claim(tell: Tell, name: str, of: str, volume: str) -> None:
    annotations = {BIND_COMPLETED: "yes"} if volume else {}
    spec = {
        "storageClassName": of,
        "resources": {"requests": {"storage": _SIZE}},
        "accessModes": ["ReadWriteOnce"],
        "volumeName": volume,
    }
    metadata = {"name": name, "namespace": "default", "uid": f"u-{name}", "annotations": annotations}
    status = {"phase": "Bound" if volume else "Pending"}
    tell(PersistentVolumeClaim, {"metadata": metadata, "spec": spec, "status": status})
