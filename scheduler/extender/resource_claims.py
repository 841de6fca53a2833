"""Resource claims of pods that kube-scheduler schedules, if their VFs must be near claimed devices. Pure.

A claim's status lists its allocated devices, by driver, pool and device. The driver's ResourceSlices of the same node
have the PCIe root of each device, if the driver publishes it. Source: k8s.io/api/resource/v1/types.go.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from mooring.names import is_subdomain
from mooring.parsing import shorten
from scheduler.kube.objects import NodeSelector, Object, Pod, Struct
from scheduler.kube.outcomes import Refused

# Source: StandardDeviceAttributePCIeRoot in k8s.io/dynamic-resource-allocation/deviceattribute/attribute.go.
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
# Each claim is a request to the API server, and so is each driver. A claim has at most 32 devices.
MOST_CLAIMS, MOST_DRIVERS = 16, 8
# For one driver on one node, of up to 128 devices each.
MOST_SLICES = 16


class _Result(Struct):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None


class _Devices(Struct):
    results: list[_Result] | None = None


class _Allocation(Struct):
    devices: _Devices | None = None
    node_selector: NodeSelector | None = None


class _ClaimStatus(Struct):
    allocation: _Allocation | None = None


class ResourceClaim(Object):
    status: _ClaimStatus | None = None


class _Attribute(Struct):
    """A device's attribute if it is a text or (from Kubernetes 1.36 on) a list of texts."""

    string: str | None = None
    strings: list[str] | None = None


class _Device(Struct):
    name: str = ""
    attributes: dict[str, _Attribute] | None = None

    @property
    def roots(self) -> frozenset[str]:
        root = (self.attributes or {}).get(PCIE_ROOT, _Attribute())
        return frozenset(root.strings or ([root.string] if root.string else ()))


class _Pool(Struct):
    name: str = ""
    generation: int = 0


class _SliceSpec(Struct):
    driver: str = ""
    pool: _Pool = msgspec.field(default_factory=_Pool)
    devices: list[_Device] | None = None


class ResourceSlice(Struct):
    spec: _SliceSpec = msgspec.field(default_factory=_SliceSpec)


class ListMetadata(Struct):
    continue_: str | None = msgspec.field(name="continue", default=None)


class ResourceSlices(Struct):
    """A list of slices; it is incomplete if its metadata has a continue token."""

    items: list[ResourceSlice]
    metadata: ListMetadata = msgspec.field(default_factory=ListMetadata)


# Driver, pool and name: pool names are unique within a driver, and device names within a pool.
Device = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation of a pod's claims: devices in order, and their node, None if unknown."""

    names: tuple[str, ...]
    devices: tuple[Device, ...]
    node: str | None = None

    @property
    def title(self) -> str:
        return f"claim{'s' if len(self.names) > 1 else ''} {', '.join(map(repr, self.names))}"

    @property
    def drivers(self) -> list[str]:
        return sorted({driver for driver, _, _ in self.devices})


@dataclass(frozen=True, slots=True)
class ClaimedDevices:
    """The PCIe roots of each of a pod's devices on a node. ``title`` names the claims."""

    title: str
    node: str
    roots: tuple[frozenset[str], ...]

    @property
    def location(self) -> str:
        """Return the message for another node."""
        return f"{self.title} has devices on node {self.node!r}"

    def refusal(self, reason: str) -> str:
        """Return why the VFs are not available near the devices, and what to do: the claims stay allocated."""
        roots = sorted(frozenset().union(*self.roots))[:_MAX_ROOTS]
        place = f"under PCIe root{'s' if len(roots) > 1 else ''} {', '.join(roots)} of {self.title}"
        return f"{place}: {reason}. {_REMEDY}"


# In a message; a node has about eight.
_MAX_ROOTS = 16
_REMEDY = (
    "The claimed devices stay allocated: free VFs there, or delete the pod and its claim, and let the new claim select "
    "another 'resource.kubernetes.io/pcieRoot'"
)


def claim_names(pod: Pod) -> tuple[str, ...] | Refused:
    """Return the names of a pod's claims, or why they are unknown."""
    claims = pod.spec.resource_claims or ()
    if len(claims) > MOST_CLAIMS:
        return Refused(f"{len(claims)} resource claims exceed the limit of {MOST_CLAIMS}")
    generated_names = {claim.name: claim.resource_claim_name for claim in pod.status.resource_claim_statuses or ()}
    names = []
    for claim in claims:
        if not claim.resource_claim_name and claim.name not in generated_names:
            return Refused(f"claim {claim.name!r} of the pod has not been created from its template yet")
        # Without a generated name no claim is needed. Source: PodResourceClaimStatus in k8s.io/api/core/v1/types.go.
        if name := claim.resource_claim_name or generated_names[claim.name]:
            names.append(name)
    # They become parts of a path, and a client may have sent any pod.
    invalid_name = next((name for name in (*names, pod.metadata.namespace) if not is_subdomain(name)), None)
    if invalid_name is not None:
        return Refused(f"{shorten(invalid_name)} is not the name of a claim or namespace")
    return tuple(dict.fromkeys(names))


def read_allocation(claims: Sequence[ResourceClaim]) -> Allocation | None:
    """Return the allocation of claims; None while one of them is not allocated."""
    allocations = [claim.status.allocation for claim in claims if claim.status and claim.status.allocation]
    if len(allocations) < len(claims):
        return None
    devices = tuple(
        (result.driver, result.pool, result.device)
        for allocation in allocations
        for result in (allocation.devices.results if allocation.devices else None) or ()
        # Admin access takes no device: others have it.
        if not result.admin_access
    )
    nodes = {node for allocation in allocations for node in _nodes(allocation.node_selector)}
    node = nodes.pop() if len(nodes) == 1 else None
    return Allocation(tuple(claim.metadata.name for claim in claims), devices, node)


def _nodes(selector: NodeSelector | None) -> Iterator[str]:
    """Yield the nodes that a selector names. The selector of local devices names their node."""
    for term in (selector.node_selector_terms if selector else None) or ():
        for field in term.match_fields or ():
            if field.key == "metadata.name" and field.operator == "In":
                yield from field.values or ()


def locate(allocation: Allocation, slices: Iterable[ResourceSlice], node: str) -> ClaimedDevices | Refused:
    """Return the roots of the allocated devices that have any, or why there is none."""
    # While a pool is being replaced, its newest generation counts.
    specs = sorted((resource_slice.spec for resource_slice in slices), key=lambda spec: spec.pool.generation)
    roots_by_device = {
        (spec.driver, spec.pool.name, device.name): device.roots for spec in specs for device in spec.devices or ()
    }
    for device in allocation.devices:
        if device not in roots_by_device:
            return Refused(f"device {'/'.join(device)!r} of {allocation.title} is in no ResourceSlice of node {node!r}")
    roots = tuple(roots_by_device[device] for device in allocation.devices if roots_by_device[device])
    if not roots:
        return Refused(
            f"no device of {allocation.title} has the attribute {PCIE_ROOT!r}: its driver does not publish the location"
        )
    return ClaimedDevices(allocation.title, node, roots)
