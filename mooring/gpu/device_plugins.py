"""Detect device plugins that also advertise a node's GPUs, so that two pods could get the same GPU. Pure.

The kubelet stores the resources of registered device plugins in a checkpoint, and counts their devices in the node's
status. Source: pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go of Kubernetes (``RegisteredDevices``).
"""

from collections.abc import Iterable, Mapping

from mooring.parsing import decode

# The resources of NVIDIA's and AMD's device plugins for whole GPUs; the second one is for time-shared GPUs. MIG
# instances have other names, and Mooring does not offer partitioned GPUs.
RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu")
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"


def allocatable_resources(amounts: Mapping[str, object]) -> list[str]:
    """Return which of the resources have a count above 0 in a node's allocatable."""
    return [name for name in RESOURCES if str(amounts.get(name, "0")) != "0"]


def registered_resources(checkpoint: str) -> list[str]:
    """Return which of the resources have devices in the kubelet's checkpoint; raise ValueError if it is unreadable."""
    try:
        devices = decode(checkpoint)["Data"]["RegisteredDevices"] or {}
        return [name for name in RESOURCES if devices.get(name)]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


def conflict(resources: Iterable[str]) -> str:
    """Return a message that device plugins advertise these resources; empty if there are none."""
    names = ", ".join(resources)
    return f"a device plugin advertises {names} on this node: two pods could get the same GPU" if names else ""
