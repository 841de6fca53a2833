"""The extended resources in node status: for manifests of earlier systems, quotas and autoscalers.

Takes an inventory, returns the resources for node status. ``rdma-sriov/vf`` and ``tencent.com/rdma`` are the number of
VFs that may be used now, ``rdma-sriov/mbps`` the Mb/s that may be reserved on the PFs. None is below what pods of the
node hold: a kubelet admits its pods again after a restart or reboot, and ends those that its node's allocatable has no
room for (Admit in pkg/kubelet/lifecycle/predicate.go of Kubernetes; a resource that the node does not have at all is
left out by removeMissingExtendedResources there, one that it has 0 of is not).

``rdma-sriov/dev-infiniband-mount`` is more than any node runs containers, as in rit-k8s-rdma's own plugin.
``mooring.dev/gpu`` is beside them, where the node's GPUs are published. Capacity and allocatable are equal. For
resources that none of its device plugins provides, a kubelet sets one to the other at each update (MachineInfo in
pkg/kubelet/nodestatus/setters.go of Kubernetes).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mooring import names
from mooring.annotations.inventory import Inventory
from mooring.gpu.inventory import GpuInventory
from mooring.gpu.request import RESOURCE
from mooring.parsing import dump

_WITHOUT_END = 10_000
_SUFFIXES = ("", "k", "M", "G")


@dataclass(frozen=True, slots=True)
class HeldVf:
    """A VF that a pod of this node has: its PF and address, and the Mb/s that the pod reserves on it."""

    pf: str
    pci: str
    min_tx_rate: int = 0


def counted_resources(
    offered: Sequence[str], inventory: Inventory, held: Iterable[HeldVf] = (), gpus: int = 0
) -> dict[str, int]:
    """Return how much the node has of each resource on offer."""
    held = tuple(held)
    vfs = _counted_vfs(inventory, held)
    known = {
        names.RIT_DEVICES: _WITHOUT_END,
        names.RESERVED_MBPS: _counted_mbps(inventory, held),
        RESOURCE: gpus,
    }
    return {name: known.get(name, vfs) for name in offered}


def dump_resources(counts: Mapping[str, int]) -> str:
    """Return capacity and allocatable as text in the form of `observed_resources`."""
    amounts = {name: quantity(count) for name, count in counts.items()}
    return dump({"allocatable": amounts, "capacity": amounts})


def _counted_vfs(inventory: Inventory, held: Collection[HeldVf]) -> int:
    """Count the VFs on offer, and those that are out or gone while a pod has them."""
    usable = {pf.vf_pci(index) for pf in inventory.pfs for index in pf.usable}
    return len(usable | {vf.pci for vf in held})


def _counted_mbps(inventory: Inventory, held: Collection[HeldVf]) -> int:
    """Add up what each port offers, or what pods reserve on it where that is more; PFs of one port share its rate."""
    port_of = {pf.name: pf.port or pf.pci for pf in inventory.pfs}
    offers: dict[str, int] = {}
    for pf in inventory.pfs:
        port = port_of[pf.name]
        offers[port] = min(offers.get(port, pf.offer_mbps), pf.offer_mbps)
    reserved = Counter[str]()
    for vf in held:
        reserved[port_of.get(vf.pf, vf.pf)] += vf.min_tx_rate
    return sum(max(offers.get(port, 0), reserved[port]) for port in offers.keys() | reserved)


def counted_gpus(inventory: GpuInventory, of_pods: Collection[str]) -> int:
    """Return how many GPUs the node has: those on offer, and those that are out or gone while a pod has them.

    A kubelet admits its pods again after a restart, and would refuse those for which the node has become too small.
    """
    return len({*(gpu.pci for gpu in inventory.gpus), *of_pods})


def observed_resources(offered: Sequence[str], capacity: Mapping[str, Any], allocatable: Mapping[str, Any]) -> str:
    """Return the current values in node status of the resources on offer, in the same form."""
    return dump(
        {
            "allocatable": {name: allocatable.get(name) for name in offered},
            "capacity": {name: capacity.get(name) for name in offered},
        }
    )


def read_quantity(text: object) -> int:
    """Read a count in node status; 0 for what no count is, such as a resource that the node does not have."""
    digits, suffix = (str(text)[:-1], str(text)[-1:]) if str(text)[-1:] in _SUFFIXES[1:] else (str(text), "")
    return int(digits) * 1000 ** _SUFFIXES.index(suffix) if digits.isascii() and digits.isdigit() else 0


def quantity(count: int) -> str:
    """Write a count as the API server returns it: 10000 is ``10k``; any other form would look like an edit."""
    exponent = 0
    while count and count % 1000 == 0 and exponent < len(_SUFFIXES) - 1:
        count, exponent = count // 1000, exponent + 1
    return f"{count}{_SUFFIXES[exponent]}"
