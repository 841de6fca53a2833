"""Decide which containers lack the devices of their pod's VFs: values in, values out.

A container's devices are those that the runtime made it with. The verbose ContainerStatus has them: ``info`` is JSON,
and its ``runtimeSpec.linux.devices`` the device nodes, in containerd (toCRIContainerInfo in
internal/cri/server/container_status.go) and in CRI-O (createContainerInfo in server/container_status.go). Names of
device nodes are the container's own; major and minor number are the kernel's, so these are compared.
"""

import json
from collections.abc import Collection, Iterable, Mapping

from cri_shim.pb import cri_pb2 as cri
from mooring.assignment import AssignedVf

# Its environment and annotations are in it as well; parsing takes the program's time.
_MOST_BYTES = 4 << 20
_CHARACTER_DEVICES = ("c", "u")
# Source: pkg/kubelet/kuberuntime/labels.go of Kubernetes.
_GRACE = "io.kubernetes.pod.terminationGracePeriod"
_DEFAULT_GRACE_S, _LONGEST_GRACE_S = 30, 600


class UnreadableSpecError(ValueError):
    """A container whose devices the runtime's answer does not tell: why."""


def device_numbers(answer: cri.ContainerStatusResponse) -> frozenset[str]:
    """Return the character devices of a container as ``major:minor``; raise UnreadableSpecError."""
    text = answer.info.get("info", b"")
    if not text or len(text) > _MOST_BYTES:
        raise UnreadableSpecError(f"the runtime's info has {len(text)} bytes")
    try:
        devices = json.loads(text)["runtimeSpec"]["linux"].get("devices") or ()
        found = [device for device in devices if device["type"] in _CHARACTER_DEVICES]
        return frozenset(f"{device['major']}:{device['minor']}" for device in found)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as unreadable:
        raise UnreadableSpecError(f"the runtime's info has no spec: {unreadable!r:.80}") from None


def lacking(entitled: Iterable[AssignedVf], numbers: Mapping[str, str], given: Collection[str]) -> tuple[str, ...]:
    """Return the PCI addresses of the VFs whose uverbs device, in ``numbers``, is not among those given."""
    return tuple(vf.pci for vf in entitled if numbers[vf.pci] not in given)


def grace_s(container: cri.Container) -> int:
    """Return how many seconds a container may take to end: the pod's own, as the kubelet notes them, within limits."""
    text = container.annotations.get(_GRACE, b"").decode(errors="replace")
    given = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else _DEFAULT_GRACE_S
    return min(given, _LONGEST_GRACE_S)
