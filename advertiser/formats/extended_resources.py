"""The extended resources of earlier systems, so that their manifests run without a device plugin.

Takes an inventory, returns the resources for node status. ``rdma-sriov/vf`` and ``tencent.com/rdma`` are the number of
VFs that may be used now. ``rdma-sriov/dev-infiniband-mount`` is more than any node runs containers, as in
rit-k8s-rdma's own plugin. Capacity and allocatable are equal. For resources that none of its device plugins provides, a
kubelet sets one to the other at each update (MachineInfo in pkg/kubelet/nodestatus/setters.go of Kubernetes).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mooring import names
from mooring.inventory import Inventory
from mooring.parsing import dump

_WITHOUT_END = 10_000
_SUFFIXES = ("", "k", "M", "G")


def desired_resources(offered: Sequence[str], inventory: Inventory) -> str:
    """Return capacity and allocatable of the resources on offer, as text in the form of `observed_resources`."""
    usable = sum(len(pf.usable) for pf in inventory.pfs)
    amounts = {name: quantity(_WITHOUT_END if name == names.SEED_DEVICES else usable) for name in offered}
    return dump({"allocatable": amounts, "capacity": amounts})


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
