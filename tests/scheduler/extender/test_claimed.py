"""A node judged for a pod whose VFs must lie beside claimed devices, and how long that may take."""

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest

from mooring import names
from scheduler.cycle.decisions import Bind
from scheduler.extender.extender_pods import Verdict
from scheduler.extender.resource_claims import ClaimedDevices
from scheduler.kube.outcomes import Refused
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.extender.scene import FOREIGN, NOW, Scene

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
        verdict = scene.judge(pod_info, "n1", claimed=claimed)["n1"]
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


def test_vfs_that_a_member_of_a_group_has_only_while_it_is_tried_are_free_beside_a_device(scene: Scene) -> None:
    """Between two portions of the decision, as for a pod without claims."""
    for number in range(18):
        scene.add_node(f"n{number}", pcie=("0000:04:01.0",))
    scene.try_group()
    pod_info = scene.pod_info([{}], **BESIDE)
    assert scene.judge(pod_info, "n0", claimed=_claimed(4, node="n0")) == {"n0": Verdict()}


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
    assert scene.judge(bind.pod_info, "n1", claimed=_claimed(0x99)) == {"n1": Verdict(for_good=True)}


@pytest.mark.parametrize("spec", [FOREIGN, {}], ids=["kube-scheduler", "mooring"])
def test_a_pod_without_claims_cannot_have_vfs_beside_them(scene: Scene, make_pod: MakePod, spec: Any) -> None:
    """Neither with kube-scheduler nor with Mooring's own scheduler, which gives no claims at all."""
    pod = make_pod(request=[{}], annotations=BESIDE["annotations"], spec=spec)
    expected = Refused("annotation 'mooring.dev/placement'.vfs: the pod has no resource claims")
    assert scene.extender_pods.read(pod) == expected
