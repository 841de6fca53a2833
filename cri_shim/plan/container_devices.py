"""Decide which containers lack the devices of their pod's VFs and GPUs: values in, values out.

A container has the devices with which the runtime created it. The verbose ContainerStatus lists them: ``info`` is JSON
with the device nodes in ``runtimeSpec.linux.devices``, both in containerd (toCRIContainerInfo in
internal/cri/server/container_status.go) and in CRI-O (createContainerInfo in server/container_status.go). A container
may have other names for the nodes, so the kernel's major and minor numbers are compared.
"""

from collections.abc import Collection, Mapping

import msgspec

from cri_shim.pb import cri_pb2 as cri

# Limit of ``info``: a pod's owner decides how much environment it has. Decoding this much takes 20 ms.
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


# msgspec creates no objects for fields that these classes do not have.
_decoder = msgspec.json.Decoder(_Info)


class UnreadableSpecError(ValueError):
    """The runtime's answer does not list the container's devices; the text has the reason."""


def device_numbers(answer: cri.ContainerStatusResponse) -> frozenset[str]:
    """Return the character devices of a container as ``major:minor``; raise UnreadableSpecError."""
    text = answer.info.get("info", b"")
    if not text or len(text) > _MOST_BYTES:
        raise UnreadableSpecError(f"the runtime's info has {len(text)} bytes, expected 1 to {_MOST_BYTES}")
    try:
        devices = _decoder.decode(text).runtime_spec.linux.devices or ()
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UnreadableSpecError(f"the runtime's info has no container spec: {error!r:.80}") from None
    return frozenset(f"{device.major}:{device.minor}" for device in devices if device.type in _CHARACTER_DEVICES)


def missing_devices(numbers: Mapping[str, str], container_numbers: Collection[str]) -> tuple[str, ...]:
    """Return the PCI addresses whose device number in ``numbers`` is not in ``container_numbers``."""
    return tuple(pci for pci, number in numbers.items() if number not in container_numbers)


def grace_s(container: cri.Container) -> int:
    """Return the termination grace period of a container's pod in seconds, up to a limit; the kubelet records it."""
    text = container.annotations.get(_GRACE, b"").decode(errors="replace")
    seconds = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else _DEFAULT_GRACE_S
    return min(seconds, _LONGEST_GRACE_S)
