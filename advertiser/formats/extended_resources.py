"""Derive a node's extended resources from its inventory, for quotas, autoscalers and manifests of earlier systems.

``rdma-sriov/vf`` and ``tencent.com/rdma`` count the VFs that can be used now; ``rdma-sriov/mbps`` is the sum of the
Mb/s that can be reserved on the PFs. No count falls below what pods of the node hold. After a restart or reboot a
kubelet admits its pods again, and rejects those that do not fit the node's allocatable (Admit in
pkg/kubelet/lifecycle/predicate.go of Kubernetes; removeMissingExtendedResources there ignores a resource that the node
lacks, but not one with the count 0).

``rdma-sriov/dev-infiniband-mount`` is more than the containers of any node, as in rit-k8s-rdma's own plugin.
``mooring.dev/gpu`` is there if the node's GPUs are published. Capacity and allocatable are equal: for resources without
a device plugin the kubelet copies capacity to allocatable at each update (MachineInfo in
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
    """A VF that a pod of this node has: PF, PCI address, and the Mb/s that the pod reserves on it."""

    pf: str
    pci: str
    min_tx_rate: int = 0


def counted_resources(
    offered: Sequence[str], inventory: Inventory, held: Iterable[HeldVf] = (), gpus: int = 0
) -> dict[str, int]:
    """Return the count of each resource that the offer names, and of ``mooring.dev/gpu``."""
    held = tuple(held)
    vfs = _counted_vfs(inventory, held)
    counts = {
        names.RIT_DEVICES: _WITHOUT_END,
        names.RESERVED_MBPS: _counted_mbps(inventory, held),
        RESOURCE: gpus,
    }
    return {name: counts.get(name, vfs) for name in offered}


def dump_resources(counts: Mapping[str, int]) -> str:
    """Return the counts as the text that `observed_resources` returns, to compare the two."""
    amounts = {name: quantity(count) for name, count in counts.items()}
    return dump({"allocatable": amounts, "capacity": amounts})


def _counted_vfs(inventory: Inventory, held: Collection[HeldVf]) -> int:
    """Count the usable VFs, and those that a pod has although they are out or gone."""
    usable = {pf.vf_pci(index) for pf in inventory.pfs for index in pf.usable}
    return len(usable | {vf.pci for vf in held})


def _counted_mbps(inventory: Inventory, held: Collection[HeldVf]) -> int:
    """Add up the Mb/s of each port: its offer, or the pods' reservations if they are more. PFs of a port share it."""
    port_of = {pf.name: pf.port or pf.pci for pf in inventory.pfs}
    offers: dict[str, int] = {}
    for pf in inventory.pfs:
        port = port_of[pf.name]
        offers[port] = min(offers.get(port, pf.offer_mbps), pf.offer_mbps)
    rates = Counter[str]()
    for vf in held:
        rates[port_of.get(vf.pf, vf.pf)] += vf.min_tx_rate
    return sum(max(offers.get(port, 0), rates[port]) for port in offers.keys() | rates)


def counted_gpus(inventory: GpuInventory, of_pods: Collection[str]) -> int:
    """Count the GPUs on offer, and those that a pod has although they are out or gone.

    A kubelet admits its pods again after a restart, and would reject pods that no longer fit the node.
    """
    return len({*(gpu.pci for gpu in inventory.gpus), *of_pods})


def observed_resources(offered: Sequence[str], capacity: Mapping[str, Any], allocatable: Mapping[str, Any]) -> str:
    """Return the node's current values of the resources on offer as text."""
    return dump(
        {
            "allocatable": {name: allocatable.get(name) for name in offered},
            "capacity": {name: capacity.get(name) for name in offered},
        }
    )


def read_quantity(text: object) -> int:
    """Return a count of node status; 0 if it is not a count, such as None for a resource that the node lacks."""
    digits, suffix = (str(text)[:-1], str(text)[-1:]) if str(text)[-1:] in _SUFFIXES[1:] else (str(text), "")
    return int(digits) * 1000 ** _SUFFIXES.index(suffix) if digits.isascii() and digits.isdigit() else 0


def quantity(count: int) -> str:
    """Return a count in the API server's form, such as ``10k``. Any other form would look like somebody's edit."""
    exponent = 0
    while count and count % 1000 == 0 and exponent < len(_SUFFIXES) - 1:
        count, exponent = count // 1000, exponent + 1
    return f"{count}{_SUFFIXES[exponent]}"
