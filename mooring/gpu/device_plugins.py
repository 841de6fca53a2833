"""Whether a device plugin gives a node's GPUs too: then one GPU may go to two pods, each by its own account. Pure.

The kubelet keeps the resources of the device plugins that have registered in a checkpoint, and counts their devices in
the node's status. Source: pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go of Kubernetes (``RegisteredDevices``).
"""

import json
from collections.abc import Iterable, Mapping

# Whole GPUs, by NVIDIA's and AMD's device plugins; the second is what the first becomes where GPUs are shared in time.
# Slices by MIG have names of their own, and Mooring offers no GPU that is cut.
RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu")
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"


def counted(amounts: Mapping[str, object]) -> list[str]:
    """Return which of the resources a node's status counts, given its allocatable; one of 0 has no device plugin."""
    return [name for name in RESOURCES if str(amounts.get(name, "0")) != "0"]


def registered(checkpoint: str) -> list[str]:
    """Return which of the resources have devices in the kubelet's checkpoint; raise ValueError if it is unreadable."""
    try:
        devices = json.loads(checkpoint)["Data"]["RegisteredDevices"] or {}
        return [name for name in RESOURCES if devices.get(name)]
    except (RecursionError, KeyError, TypeError, AttributeError) as broken:
        raise ValueError(str(broken)) from broken


def conflict(resources: Iterable[str]) -> str:
    """Return in words that these resources are given beside Mooring's GPUs; empty without any."""
    named = ", ".join(resources)
    return f"a device plugin gives {named} on this node: one GPU may go to two pods" if named else ""
