"""Resource claims of pods that kube-scheduler schedules, if their VFs must be near claimed devices. Pure.

A claim's status lists its allocated devices, by driver, pool and device. The driver's ResourceSlices of the same node
have the PCIe root of each device, if the driver publishes it. Source: k8s.io/api/resource/v1/types.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from mooring.names import is_subdomain
from mooring.parsing import shorten
from scheduler.kube.objects import Metadata, Pod, Struct
from scheduler.kube.refused import Refused

# Source: StandardDeviceAttributePCIeRoot in k8s.io/dynamic-resource-allocation/deviceattribute/attribute.go.
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
# Each claim is a request to the API server, and so is each driver. A claim has at most 32 devices.
MOST_CLAIMS, MOST_DRIVERS = 16, 8
# For one driver on one node, of up to 128 devices each; one of the largest takes milliseconds to decode.
MOST_SLICES = 4


class Device(Struct):
    """An allocated DRA device: pool names are unique within a driver, and device names within a pool."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class _Devices(Struct):
    results: list[Device] | None = None


class _Allocation(Struct):
    devices: _Devices = msgspec.field(default_factory=_Devices)


class _ClaimStatus(Struct):
    allocation: _Allocation | None = None


class ResourceClaim(Struct):
    metadata: Metadata
    status: _ClaimStatus | None = None


class _Attribute(Struct):
    """A device's attribute if it is a text or (from Kubernetes 1.36 on) a list of texts."""

    string: str | None = None
    strings: list[str] | None = None


class _Device(Struct):
    name: str = ""
    attributes: dict[str, _Attribute] | None = None


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


@dataclass(frozen=True, slots=True)
class Claimed:
    """The claimed devices of a pod: the roots of each. ``title`` names the claims."""

    title: str
    devices: tuple[frozenset[str], ...]

    def refusal(self, reason: str) -> str:
        """Return why the VFs are not available near the devices, and what to do: the claims stay allocated."""
        roots = sorted(frozenset().union(*self.devices))[:_MAX_ROOTS_SHOWN]
        place = f"under PCIe root{'s' if len(roots) > 1 else ''} {', '.join(roots)} of {self.title}"
        return f"{place}: {reason}. {_REMEDY}"


# A node has about eight.
_MAX_ROOTS_SHOWN = 16
_REMEDY = (
    "The claimed devices stay allocated: free VFs there, or delete the pod and its claim, and let the new claim select "
    "another 'resource.kubernetes.io/pcieRoot'"
)


def claim_names(pod: Pod) -> tuple[str, ...] | Refused:
    """Return the names of a pod's claims, or why they are unknown."""
    claims = pod.spec.resource_claims or ()
    if len(claims) > MOST_CLAIMS:
        return Refused(f"{len(claims)} resource claims exceed the limit of {MOST_CLAIMS}")
    status_of = {claim.name: claim for claim in pod.status.resource_claim_statuses or ()}
    claim_keys = []
    for claim in claims:
        if claim.resource_claim_name:
            claim_keys.append(claim.resource_claim_name)
        elif claim.name not in status_of:
            return Refused(f"claim {claim.name!r} of the pod has not been created from its template yet")
        elif generated_name := status_of[claim.name].resource_claim_name:
            claim_keys.append(generated_name)
        # Else none is needed. Source: PodResourceClaimStatus in k8s.io/api/core/v1/types.go.
    # They become parts of a path, and who asks may have sent the pod himself.
    strange = next((name for name in (*claim_keys, pod.metadata.namespace) if not is_subdomain(name)), None)
    if strange is not None:
        return Refused(f"{shorten(strange)} is not the name of a claim or namespace")
    return tuple(dict.fromkeys(claim_keys))


def title_of(names: Sequence[str]) -> str:
    return f"claim{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


def allocated_devices(claims: Sequence[ResourceClaim]) -> list[Device] | None:
    """Return the devices of claims in order; None while one of them is not allocated."""
    allocations = [claim.status.allocation for claim in claims if claim.status and claim.status.allocation]
    if len(allocations) < len(claims):
        return None
    results = (result for allocation in allocations for result in allocation.devices.results or ())
    # Admin access takes no device: others have it.
    return [result for result in results if not result.admin_access]


def roots_of(
    title: str, devices: Sequence[Device], slices: Iterable[ResourceSlice], node: str
) -> tuple[frozenset[str], ...] | Refused:
    """Return the PCIe roots of each allocated device that has any, in order, or why there is none."""
    roots_by_device = _published(slices)
    if missing := next((device for device in map(str, devices) if device not in roots_by_device), None):
        return Refused(f"device {missing!r} of {title} is in no ResourceSlice of node {node!r}")
    roots = tuple(roots_by_device[str(device)] for device in devices if roots_by_device[str(device)])
    reason = f"no device of {title} has the attribute {PCIE_ROOT!r}: its driver does not publish the location"
    return roots or Refused(reason)


def _published(slices: Iterable[ResourceSlice]) -> Mapping[str, frozenset[str]]:
    """Return the roots of each device; while a pool is being replaced, its newest generation counts."""
    specs = sorted((resource_slice.spec for resource_slice in slices), key=lambda spec: spec.pool.generation)
    return {
        str(Device(spec.driver, spec.pool.name, device.name)): _roots(device)
        for spec in specs
        for device in spec.devices or ()
    }


def _roots(device: _Device) -> frozenset[str]:
    attribute = (device.attributes or {}).get(PCIE_ROOT)
    if attribute is None:
        return frozenset()
    return frozenset(attribute.strings or ([attribute.string] if attribute.string else ()))
