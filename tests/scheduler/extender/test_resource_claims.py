"""Claimed devices: under which PCIe roots they lie, and which nodes have VFs beside them."""

import gc
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mooring import names
from scheduler.cycle.decisions import Bind
from scheduler.extender.extender_pods import Verdict
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
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.extender.scene import FOREIGN, NOW, Scene

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


# What a step of the scheduler may cost, in seconds; here with room for a busy machine.
_STEP_S, _BUSY = 0.05, 4
BESIDE = {
    "annotations": {names.PLACEMENT: '{"vfs": "root"}'},
    "spec": {"resourceClaims": [{"name": "gpus", "resourceClaimName": "c"}]},
}
FEW, STEPS = "not enough free RDMA VFs or bandwidth there", "search for a placement ran out of steps"
NEVER = "the PFs there cannot give each device its share"


def _claimed(*roots: int, node: str = "n1") -> ClaimedDevices:
    return ClaimedDevices("claim 'c'", node, tuple(frozenset({f"pci0000:{root:02x}"}) for root in roots))


@pytest.fixture
def judged(scene: Scene, make_pf: MakePf, make_node: MakeNode) -> Callable[..., tuple[Verdict, Any, float]]:
    """Judge a pod on a node of eight PFs with eight VFs, each under a root of its own, and reserve if it fits."""
    pfs = tuple(make_pf(number, vfs=8, pcie=(f"0000:{number + 4:02x}:01.0",)) for number in range(8))
    scene.see(make_node("n1", pfs))

    def judge(request: object, *roots: int, node: str = "n1") -> tuple[Verdict, Any, float]:
        pod_info, claimed = scene.pod_info(request, **BESIDE), _claimed(*roots, node=node)
        # A collection of what the tests before have left is not counted.
        gc.collect()
        began_s = time.process_time()
        verdict = scene.verdicts(pod_info, "n1", claimed=claimed)["n1"]
        spent_s = time.process_time() - began_s
        return verdict, scene.extender_pods.reserve(pod_info, "n1", NOW, claimed), spent_s

    return judge


def test_a_division_is_found_whatever_the_rates_and_the_order_are(judged: Callable[..., Any]) -> None:
    """Two of 80 Gb/s need a PF each; two small ones go where there is room beside them."""
    request = [{"min_tx_rate": rate} for rate in (80_000, 10_000, 80_000, 10_000)]
    verdict, bind, _ = judged(request, 4, 5)
    assert verdict == Verdict()
    assert isinstance(bind, Bind)
    assert bind.assigned.assignment is not None
    assert sorted(vf.pf for vf in bind.assigned.assignment.vfs) == ["pf0", "pf0", "pf1", "pf1"]
    assert FEW in judged([{"min_tx_rate": 5_000}], 4)[0].reason
    assert judged([{"min_tx_rate": 5_000}], 6)[0] == Verdict()


def test_a_root_without_a_pf_is_no_matter_of_eviction(judged: Callable[..., Any]) -> None:
    """No pod's end makes a PF."""
    verdict, refused, _ = judged([{}], 0x99)
    assert verdict.for_good
    assert judged([{}], 4, node="n2")[0] == Verdict("claim 'c' has devices on node 'n2'", for_good=True)
    assert "under PCIe root pci0000:99 of claim 'c': the PFs there cannot give each device its share" in refused.reason


@pytest.mark.parametrize(
    ("rates", "roots", "outcome"),
    [
        ([1000 + number for number in range(64)], range(4, 12), ""),
        ([1000 + number for number in range(64)], range(4, 7), NEVER),
        ([11_200 + number for number in range(63)], range(4, 12), STEPS),
        ([80_000 + number for number in range(8)], range(4, 11), NEVER),
    ],
)
def test_no_request_costs_more_than_a_step(
    judged: Callable[..., Any], rates: list[int], roots: range, outcome: str
) -> None:
    """However many interfaces differ; where the steps run out, that is said."""
    verdict, _, spent_s = judged([{"min_tx_rate": rate} for rate in rates], *roots)
    assert outcome in verdict.reason
    assert bool(outcome) == bool(verdict.reason)
    assert spent_s < _STEP_S * _BUSY


def test_a_pod_that_is_being_bound_fits_only_that_node_whatever_its_claims_say(
    judged: Callable[..., Any], scene: Scene
) -> None:
    """Its VFs are reserved: the claim of a later request cannot change them."""
    _, bind, _ = judged([{}], 4)
    assert scene.verdicts(bind.pod_info, "n1", claimed=_claimed(0x99)) == {"n1": Verdict(for_good=True)}


@pytest.mark.parametrize("spec", [FOREIGN, {}], ids=["kube-scheduler", "mooring"])
def test_a_pod_without_claims_cannot_have_vfs_beside_them(scene: Scene, make_pod: MakePod, spec: Any) -> None:
    """Neither with kube-scheduler nor with Mooring's own scheduler, which gives no claims at all."""
    pod = make_pod(request=[{}], annotations=BESIDE["annotations"], spec=spec)
    expected = Refused("annotation 'mooring.dev/placement'.vfs: the pod has no resource claims")
    assert scene.extender_pods.read(pod) == expected
