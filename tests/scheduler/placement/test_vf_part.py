"""The VFs beside other kinds: they are placed as the plugin over columns places them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.constraints.kinds import NONE
from scheduler.constraints.protocol import Proposal, Unmet
from scheduler.cycle.placement_budget import PlacementBudget
from scheduler.cycle.signature_scores import SignatureScores
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.placement.joint import VfPart
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import FreeVfs
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.constraints.life import Life

_interfaces = st.lists(
    st.fixed_dictionaries(
        {}, optional={"min_tx_rate": st.sampled_from([1, 30_000, 60_000]), "pf": st.sampled_from(["pf0", "pf*", "x"])}
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture
def free_vfs(make_pf: MakePf, make_node: MakeNode) -> Callable[..., tuple[Machine, FreeVfs]]:
    """Make a machine with one node that has so many VFs on each PF, and give what is left there."""

    def make(counts: Sequence[int], used: Sequence[Pod] = ()) -> tuple[Machine, FreeVfs]:
        life = Life(NONE)
        life.see(
            make_node(
                pfs=tuple(make_pf(index, count, offer_mbps=70_000) for index, count in enumerate(counts) if count)
            )
        )
        for pod in used:
            life.place(pod)
        return life.machine, life.machine.cache.nodes.free_vfs_of_row[0]

    return make


def _pod_info(pod: Pod) -> PodInfo:
    pod_info = read_pod_info(pod)
    assert isinstance(pod_info, PodInfo)
    return pod_info


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    interfaces=_interfaces,
    pfs=st.sampled_from([None, "pack", "spread", "distinct"]),
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    before=st.lists(_interfaces, max_size=2),
)
def test_vfs_beside_other_kinds_are_placed_as_vfs_alone(
    interfaces: list[dict[str, Any]],
    pfs: str | None,
    counts: Sequence[int],
    before: list[list[dict[str, Any]]],
    free_vfs: Callable[..., tuple[Machine, FreeVfs]],
    make_pod: MakePod,
) -> None:
    """The same PFs, or none, whatever is requested and whatever is left."""
    machine, left = free_vfs(counts, [make_pod(request=one) for one in before])
    placement = {} if pfs is None else {"mooring.dev/placement": f'{{"pfs":"{pfs}"}}'}
    pod_info = _pod_info(make_pod(request=interfaces, annotations=placement))
    assert pod_info.request is not None
    part = VfPart(pod_info.request, left)
    signature_scores = SignatureScores(pod_info, machine.cache.nodes, Steps())
    reasons = [text for rule, texts, _ in signature_scores.refusals() if rule.name == "RdmaVfs" for text in texts]
    chosen = signature_scores.exact(0, PlacementBudget()) if not reasons else Refused(reasons[0])
    assert chosen is not None
    if isinstance(chosen, Refused):
        with pytest.raises(Unmet):
            next(part.proposals({}, Steps()))
    else:
        (proposal,) = part.proposals({}, Steps())
        assert proposal.units == tuple(left.pfs[index].name for index in chosen.pfs)


def test_vfs_are_placed_within_what_other_kinds_require(
    free_vfs: Callable[..., tuple[Machine, FreeVfs]], make_pod: MakePod
) -> None:
    _, left = free_vfs((2, 2, 2))
    request = _pod_info(make_pod(request=[{}, {}])).request
    assert request is not None
    part = VfPart(request, left)
    one = Proposal((), narrows={"vfs": {1: frozenset({"pf1", "pf2"})}})
    two = Proposal((), narrows={"vfs": {1: frozenset({"pf0", "pf2"}), 0: frozenset({"pf1"})}})
    (proposal,) = part.proposals({"a": one, "b": two}, Steps())
    assert proposal.units == ("pf1", "pf2")
    three = Proposal((), narrows={"vfs": {1: frozenset({"pf0"})}})
    with pytest.raises(Unmet, match="no PF can provide an interface near the pod's other resources"):
        next(part.proposals({"a": one, "c": three}, Steps()))
