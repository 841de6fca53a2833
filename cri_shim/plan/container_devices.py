"""Decide which containers lack the devices of their pod's VFs and GPUs: values in, values out.

A container's devices are those that the runtime made it with. The verbose ContainerStatus has them: ``info`` is JSON,
and its ``runtimeSpec.linux.devices`` the device nodes, in containerd (toCRIContainerInfo in
internal/cri/server/container_status.go) and in CRI-O (createContainerInfo in server/container_status.go). Names of
device nodes are the container's own; major and minor number are the kernel's, so these are compared.
"""

from collections.abc import Collection, Mapping

import msgspec

from cri_shim.pb import cri_pb2 as cri

# The pod's owner decides how much environment there is; reading so much takes 20 ms.
_MOST_BYTES = 8 << 20
_CHARACTER_DEVICES = ("c", "u")
# Source: pkg/kubelet/kuberuntime/labels.go of Kubernetes.
_GRACE = "io.kubernetes.pod.terminationGracePeriod"
_DEFAULT_GRACE_S, _LONGEST_GRACE_S = 30, 600


class _Device(msgspec.Struct):
    type: str
    major: int = 0
    minor: int = 0


class _Linux(msgspec.Struct):
    devices: list[_Device] | None = None


class _Spec(msgspec.Struct):
    linux: _Linux


class _Info(msgspec.Struct, rename="camel"):
    runtime_spec: _Spec


# It builds no objects for what it does not look for, however much that is.
_decoder = msgspec.json.Decoder(_Info)


class UnreadableSpecError(ValueError):
    """A container whose devices the runtime's answer does not tell: why."""


def device_numbers(answer: cri.ContainerStatusResponse) -> frozenset[str]:
    """Return the character devices of a container as ``major:minor``; raise UnreadableSpecError."""
    text = answer.info.get("info", b"")
    if not text or len(text) > _MOST_BYTES:
        raise UnreadableSpecError(f"the runtime's info has {len(text)} bytes, expected 1 to {_MOST_BYTES}")
    try:
        devices = _decoder.decode(text).runtime_spec.linux.devices or ()
    except (msgspec.DecodeError, ValueError, RecursionError) as unreadable:
        raise UnreadableSpecError(f"the runtime's info has no container spec: {unreadable!r:.80}") from None
    return frozenset(f"{device.major}:{device.minor}" for device in devices if device.type in _CHARACTER_DEVICES)


def lacking(numbers: Mapping[str, str], given: Collection[str]) -> tuple[str, ...]:
    """Return the PCI addresses of the functions whose device, by its number, is not among those given."""
    return tuple(pci for pci, number in numbers.items() if number not in given)


def grace_s(container: cri.Container) -> int:
    """Return how many seconds a container may take to end: the pod's own, as the kubelet notes them, within limits."""
    text = container.annotations.get(_GRACE, b"").decode(errors="replace")
    given = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else _DEFAULT_GRACE_S
    return min(given, _LONGEST_GRACE_S)
