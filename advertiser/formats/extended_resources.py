"""The extended resources of earlier systems, so that their manifests run without a device plugin.

Takes an inventory, returns the resources for node status. ``rdma-sriov/vf`` and ``tencent.com/rdma`` are the number of
VFs that may be used now. ``rdma-sriov/dev-infiniband-mount`` is more than any node runs containers, as in
rit-k8s-rdma's own plugin. ``mooring.dev/gpu`` is beside them, where the node's GPUs are published. Capacity and
allocatable are equal. For resources that none of its device plugins provides, a kubelet sets one to the other at each
update (MachineInfo in pkg/kubelet/nodestatus/setters.go of Kubernetes).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from mooring import names
from mooring.gpu.inventory import GpuInventory
from mooring.gpu.request import RESOURCE
from mooring.inventory import Inventory
from mooring.parsing import dump

_WITHOUT_END = 10_000
_SUFFIXES = ("", "k", "M", "G")


def desired_resources(offered: Sequence[str], inventory: Inventory, gpus: int = 0) -> str:
    """Return capacity and allocatable of the resources on offer, as text in the form of `observed_resources`."""
    usable = sum(len(pf.usable) for pf in inventory.pfs)
    known = {names.SEED_DEVICES: _WITHOUT_END, RESOURCE: gpus}
    amounts = {name: quantity(known.get(name, usable)) for name in offered}
    return dump({"allocatable": amounts, "capacity": amounts})


def counted_gpus(inventory: GpuInventory, of_pods: Collection[str]) -> int:
    """Return how many GPUs the node has: those on offer, and those that are out while a pod has them.

    A kubelet admits its pods again after a restart, and would refuse those for which the node has become too small.
    """
    return len(inventory.gpus) + sum(gpu.pci in of_pods for gpu in inventory.out)


def observed_resources(offered: Sequence[str], capacity: Mapping[str, Any], allocatable: Mapping[str, Any]) -> str:
    """Return the current values in node status of the resources on offer, in the same form."""
    return dump(
        {
            "allocatable": {name: allocatable.get(name) for name in offered},
            "capacity": {name: capacity.get(name) for name in offered},
        }
    )


def quantity(count: int) -> str:
    """Write a count as the API server returns it: 10000 is ``10k``; any other form would look like an edit."""
    exponent = 0
    while count and count % 1000 == 0 and exponent < len(_SUFFIXES) - 1:
        count, exponent = count // 1000, exponent + 1
    return f"{count}{_SUFFIXES[exponent]}"
