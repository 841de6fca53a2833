"""What is read of resource claims and ResourceSlices: which devices a pod has, and under which PCIe roots they lie."""

from typing import Any

import msgspec

from scheduler.extender.resource_claims import (
    MOST_CLAIMS,
    PCIE_ROOT,
    Allocation,
    ClaimedDevices,
    ResourceClaim,
    ResourceSlice,
    claim_names,
    locate,
    read_allocation,
)
from scheduler.kube.outcomes import Refused
from tests.scheduler.conftest import MakePod

DRIVER = "gpu.example.com"


def _claim(*results: dict[str, Any], nodes: tuple[str, ...] = ("n1",), name: str = "gpus") -> ResourceClaim:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(nodes)}]}
    selector = {"nodeSelectorTerms": [term]} if nodes else None
    status = {"allocation": {"devices": {"results": list(results)}, "nodeSelector": selector}}
    return msgspec.convert({"metadata": {"name": name}, "status": status}, ResourceClaim)


def _result(device: str, **fields: Any) -> dict[str, Any]:
    return {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": device} | fields


def _slice(*devices: dict[str, Any], generation: int = 1, driver: str = DRIVER) -> ResourceSlice:
    spec = {"driver": driver, "nodeName": "n1", "pool": {"name": "n1", "generation": generation}}
    return msgspec.convert({"spec": spec | {"devices": list(devices)}}, ResourceSlice)


def _at(name: str, root: Any) -> dict[str, Any]:
    attributes = {"memory": {"int": 80}, "pcieRoot": {"string": "the driver's own"}}
    if root is not None:
        attributes[PCIE_ROOT] = {"strings": root} if isinstance(root, list) else {"string": root}
    return {"name": name, "attributes": attributes}


def test_claims_have_their_own_names_or_those_of_the_status(make_pod: MakePod) -> None:
    """A claim that was made from a template has a name that only the pod's status tells; none may be needed."""
    claims = [{"name": "a", "resourceClaimName": "shared"}, {"name": "b", "resourceClaimTemplateName": "t"}]
    pod = make_pod(spec={"resourceClaims": claims})
    assert claim_names(pod) == Refused("claim 'b' of the pod has not been created from its template yet")
    made = {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p0-b-x7f2"}]}
    assert claim_names(make_pod(spec={"resourceClaims": claims}, status=made)) == ("shared", "p0-b-x7f2")
    none = {"resourceClaimStatuses": [{"name": "b"}]}
    assert claim_names(make_pod(spec={"resourceClaims": claims}, status=none)) == ("shared",)
    many = [{"name": str(number), "resourceClaimName": "one"} for number in range(MOST_CLAIMS + 1)]
    assert claim_names(make_pod(spec={"resourceClaims": many})) == Refused("17 resource claims exceed the limit of 16")
    beyond = [{"name": "a", "resourceClaimName": "../../../secrets"}]
    refused = Refused("'../../../secrets' is not the name of a claim or namespace")
    assert claim_names(make_pod(spec={"resourceClaims": beyond})) == refused


def test_devices_are_known_once_all_claims_are_allocated() -> None:
    """One that is looked at as an administrator is nobody's; the node is the one that the allocation names."""
    waiting = msgspec.convert({"metadata": {"name": "more"}, "status": {}}, ResourceClaim)
    claim = _claim(_result("gpu-1"), _result("gpu-0"), _result("gpu-2", adminAccess=True))
    assert read_allocation([claim, waiting]) is None
    found = read_allocation([claim, _claim(_result("gpu-7"), nodes=(), name="more")])
    assert found is not None
    assert [device[2] for device in found.devices] == ["gpu-1", "gpu-0", "gpu-7"]
    assert (found.title, found.node) == ("claims 'gpus', 'more'", "n1")
    assert (elsewhere := read_allocation([claim, _claim(nodes=("n2",))])) is not None
    assert elsewhere.node is None


def test_a_device_lies_under_the_root_that_its_slice_says() -> None:
    """The newest generation of a pool counts, devices without a root do not.

    An attribute of that name of the driver's own domain is another one.
    """
    devices = [_at("gpu-0", "pci0000:15"), _at("gpu-1", ["pci0000:26", "pci0000:37"]), _at("imex", None)]
    slices = [_slice(*devices, generation=2), _slice(_at("gpu-0", "pci0000:99"), generation=1)]
    found = Allocation(("gpus",), tuple((DRIVER, "n1", name) for name in ("gpu-1", "imex", "gpu-0")))
    roots = (frozenset({"pci0000:26", "pci0000:37"}), frozenset({"pci0000:15"}))
    assert locate(found, slices, "n1") == ClaimedDevices("claim 'gpus'", "n1", roots)
    (only,) = (Allocation(("gpus",), ((DRIVER, "n1", "imex"),)),)
    assert locate(only, slices, "n1") == Refused(
        "no device of claim 'gpus' has the attribute 'resource.kubernetes.io/pcieRoot': its driver does not publish "
        "the location"
    )
    assert locate(found, [_slice(*devices, driver="other.example.com")], "n1") == Refused(
        "device 'gpu.example.com/n1/gpu-1' of claim 'gpus' is in no ResourceSlice of node 'n1'"
    )
