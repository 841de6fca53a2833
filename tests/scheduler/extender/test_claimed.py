"""A node judged for a pod whose VFs must lie beside claimed devices, and how long that may take."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from mooring import names
from mooring.annotations.inventory import Pf
from mooring.kube.events import Changed, Identity
from scheduler.cycle.decisions import Bind
from scheduler.extender.resource_claims import Claimed
from scheduler.kube.objects import Node, Pod
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.refused import Refused
from scheduler.state.machine import Machine

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
MakePod = Callable[..., Pod]
NOW = 1000.0
# What a step of the scheduler may cost, in seconds; here with room for a busy machine.
_STEP_S, _BUSY = 0.05, 4
CLAIMS = {"resourceClaims": [{"name": "gpus", "resourceClaimName": "c"}]}
FEW, STEPS = "free RDMA VFs and bandwidth do not fit the interfaces together", "search for a placement ran out of steps"


@pytest.fixture
def reserved(
    machine: Machine, make_pf: MakePf, make_node: MakeNode, make_pod: MakePod
) -> Callable[..., tuple[Any, float]]:
    """Reserve for a pod on a node of eight PFs with eight VFs, each under a root of its own."""
    pfs = tuple(make_pf(number, vfs=8, pcie=(f"0000:{number + 4:02x}:01.0",)) for number in range(8))
    machine.nodes(Changed(Identity("", "n1", "", ""), make_node("n1", pfs)), NOW)

    def reserve(request: object, *roots: int) -> tuple[Any, float]:
        placed = {names.PLACEMENT: '{"vfs": "root"}'}
        pod = make_pod(request=request, annotations=placed, spec={"schedulerName": "default-scheduler", **CLAIMS})
        meta = pod.metadata
        machine.pods(Changed(Identity(meta.namespace, meta.name, meta.uid, ""), pod), NOW)
        pod_info = machine.extender_pods.read(pod)
        assert isinstance(pod_info, PodInfo), pod_info
        claimed = Claimed("claim 'c'", tuple(frozenset({f"pci0000:{root:02x}"}) for root in roots))
        began_s = time.process_time()
        outcome = machine.extender_pods.reserve(pod_info, "n1", NOW, claimed)
        return outcome, time.process_time() - began_s

    return reserve


def test_a_division_is_found_whatever_the_rates_and_the_order_are(reserved: Callable[..., Any]) -> None:
    """Two of 80 Gb/s need a PF each; two small ones go where there is room beside them."""
    request = [{"min_tx_rate": rate} for rate in (80_000, 10_000, 80_000, 10_000)]
    bind, _ = reserved(request, 4, 5)
    assert isinstance(bind, Bind)
    assert bind.assigned.assignment is not None
    assert sorted(vf.pf for vf in bind.assigned.assignment.vfs) == ["pf0", "pf0", "pf1", "pf1"]
    assert FEW in reserved([{"min_tx_rate": 5_000}], 4)[0].reason
    assert isinstance(reserved([{"min_tx_rate": 5_000}], 6)[0], Bind)


def test_vfs_that_a_member_of_a_group_has_only_while_it_is_tried_are_free_beside_a_device(
    machine: Machine, make_pf: MakePf, make_node: MakeNode, make_pod: MakePod
) -> None:
    """Between two portions of the decision, as for a pod without claims."""

    def see(pod: Pod) -> None:
        machine.pods(Changed(Identity(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid, ""), pod), NOW)

    for number in range(18):
        pfs = (make_pf(vfs=1, pcie=("0000:04:01.0",)),)
        machine.nodes(Changed(Identity(f"n{number}"), make_node(f"n{number}", pfs)), NOW)
    for _ in range(20):
        see(make_pod(request=[{}], annotations={names.GROUP: '{"name":"train","min":20}'}))
    assert machine.step(NOW) == []
    assert list(machine.cache.assigned_pods()) == []
    node = "n0"
    placed = {names.PLACEMENT: '{"vfs": "root"}'}
    pod = make_pod(request=[{}], annotations=placed, spec={"schedulerName": "default-scheduler", **CLAIMS})
    see(pod)
    pod_info = machine.extender_pods.read(pod)
    assert isinstance(pod_info, PodInfo)
    claimed = Claimed("claim 'c'", (frozenset({"pci0000:04"}),))
    assert isinstance(machine.extender_pods.reserve(pod_info, node, NOW, claimed), Bind)
    machine.check()


def test_a_root_without_a_pf_gives_no_vfs(reserved: Callable[..., Any]) -> None:
    """The refusal names the root and the claim."""
    refused, _ = reserved([{}], 0x99)
    assert "under PCIe root pci0000:99 of claim 'c': no PF can provide an interface near" in refused.reason


@pytest.mark.parametrize(
    ("rates", "roots", "outcome"),
    [
        ([1000 + number for number in range(64)], range(4, 12), ""),
        ([1000 + number for number in range(64)], range(4, 7), FEW),
        ([11_200 + number for number in range(63)], range(4, 12), STEPS),
        ([80_000 + number for number in range(8)], range(4, 11), FEW),
    ],
)
def test_no_request_costs_more_than_a_step(
    reserved: Callable[..., Any], rates: list[int], roots: range, outcome: str
) -> None:
    """However many interfaces differ; where the steps run out, that is said."""
    answer, spent_s = reserved([{"min_tx_rate": rate} for rate in rates], *roots)
    assert isinstance(answer, Bind) if not outcome else outcome in answer.reason
    assert spent_s < _STEP_S * _BUSY


def test_a_pod_without_claims_cannot_have_vfs_beside_them(machine: Machine, make_pod: MakePod) -> None:
    """Neither with kube-scheduler nor with Mooring's own scheduler, which gives no claims at all."""
    placed = {names.PLACEMENT: '{"vfs": "root"}'}
    for spec in ({"schedulerName": "default-scheduler"}, {}):
        refused = machine.extender_pods.read(make_pod(request=[{}], annotations=placed, spec=spec))
        assert refused == Refused("annotation 'mooring.dev/placement'.vfs: the pod has no resource claims")
