"""Which pending pods are equal in all that a rule reads: one answer holds for all of them. Pure."""

import msgspec

from mooring import names
from scheduler.task import Task

_READ = (names.REQUEST, names.SEED_REQUEST, names.PLACEMENT)
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
# Where a pod is to go and when: who schedules it and how early says nothing about where it fits.
_UNREAD = frozenset({"schedulerName", "nodeName", "priority", "volumes", "schedulingGates"})


def kin_of(task: Task) -> bytes:
    """Return a key that equal pods share: namespace, labels, owner, spec and request, without names of the pod's own.

    A volume's name is often the pod's own (``kube-api-access-x7k2p``), so that volumes count without their names.
    """
    pod = task.pod
    spec = msgspec.to_builtins(pod.spec)
    volumes = [{key: value for key, value in volume.items() if key != "name"} for volume in spec.get("volumes") or ()]
    read = {key: value for key, value in spec.items() if key not in _UNREAD}
    request = [pod.annotations.get(key) for key in _READ]
    owners = msgspec.to_builtins(pod.metadata.owner_references)
    return _encode([pod.metadata.namespace, pod.metadata.labels, owners, read, volumes, request])
