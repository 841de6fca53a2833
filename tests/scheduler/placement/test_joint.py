"""The search over several kinds, the VFs last; the number of attempts is bounded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.constraints.protocol import Beside, Proposal, Unmet
from scheduler.cycle.placement_budget import PlacementBudget
from scheduler.cycle.signature_scores import SignatureScores
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.assign import OUT_OF_BUDGET, Placement
from scheduler.placement.joint import VfPart, place_kinds, section
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import EMPTY
from tests.scheduler.conftest import Json
from tests.scheduler.group_life import Life, pod_info_of


@dataclass
class Picky:
    """Proposes its units one by one, except those that another kind's choice excludes."""

    name: str
    units: Sequence[str]
    against: dict[str, str] = field(default_factory=dict)
    seen: list[Beside] = field(default_factory=list)

    def proposals(self, beside: Beside, steps: Steps) -> Iterator[Proposal]:
        self.seen.append(beside)
        taken = {unit for proposal in beside.values() for unit in proposal.units}
        for unit in self.units:
            if self.against.get(unit) not in taken:
                yield Proposal((unit,))
        if not self.units:
            raise Unmet(f"no {self.name} at all")


def test_a_kind_proposes_again_if_a_later_one_finds_no_way() -> None:
    """The later kind sees what the earlier one took, and the first combination that fits is taken."""
    later = Picky("b", ["x"], {"x": "1"})
    found = place_kinds([Picky("a", ["1", "2"]), later], EMPTY, steps=Steps())
    assert found == Placement((), (("a", Proposal(("2",))), ("b", Proposal(("x",)))))
    assert [beside["a"].units for beside in later.seen] == [("1",), ("2",)]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (Picky("a", []), Picky("b", ["x"]), "no a at all"),
        (Picky("a", ["1"]), Picky("b", []), "free a, b do not fit together"),
        (Picky("a", ["1"], {"1": ""}), Picky("b", ["x"], {"x": "1"}), "free a, b do not fit together"),
    ],
)
def test_without_a_placement_the_reason_is_the_first_kinds_or_the_combination(
    first: Picky, second: Picky, reason: str
) -> None:
    """What a kind lacks by itself is its own reason; what only the combination excludes names all of them."""
    assert place_kinds([first, second], EMPTY, steps=Steps()) == Refused(reason)


def test_attempts_are_counted_and_running_out_is_an_outcome_of_its_own() -> None:
    endless, never = Picky("a", [str(number) for number in range(10_000)]), Picky("b", [])
    assert place_kinds([endless, never], EMPTY, budget=20, steps=Steps()) == Refused(OUT_OF_BUDGET)
    assert len(never.seen) == 21


def test_details_stand_beside_the_units() -> None:
    assert section(Proposal(("u",), {"model": "h100"})) == {"units": ["u"], "model": "h100"}


_interfaces = st.lists(
    st.fixed_dictionaries(
        {}, optional={"min_tx_rate": st.sampled_from([1, 30_000, 60_000]), "pf": st.sampled_from(["pf0", "pf*", "x"])}
    ),
    min_size=1,
    max_size=4,
)


def _on_node(life: Life, counts: Sequence[int], request: object, pfs: str | None = None) -> tuple[PodInfo, VfPart]:
    """Show a node with so many VFs on each PF; return a pod, and its VFs as a part beside other kinds."""
    life.show_node("n1", *(life.make_pf(index, count, offer_mbps=70_000) for index, count in enumerate(counts)))
    placement = {} if pfs is None else {"mooring.dev/placement": f'{{"pfs":"{pfs}"}}'}
    pod_info = pod_info_of(life.make_pod(request=request, annotations=placement))
    assert pod_info.request is not None
    return pod_info, VfPart(pod_info.request, life.machine.cache.nodes.free_vfs_of_row[0])


@settings(max_examples=200)
@given(
    interfaces=_interfaces,
    pfs=st.sampled_from([None, "pack", "spread", "distinct"]),
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    before=st.lists(_interfaces, max_size=2),
)
def test_vfs_beside_other_kinds_are_placed_as_vfs_alone(
    interfaces: list[Json], pfs: str | None, counts: Sequence[int], before: list[list[Json]], life: Life
) -> None:
    life = life.successor()
    _on_node(life, counts, [{}])
    life.place(*(life.make_pod(request=request) for request in before))
    pod_info, part = _on_node(life, counts, interfaces, pfs)
    signature_scores = SignatureScores(pod_info, life.machine.cache.nodes, Steps())
    reasons = [text for rule, texts, _ in signature_scores.refusals() if rule.name == "RdmaVfs" for text in texts]
    chosen = signature_scores.exact(0, PlacementBudget()) if not reasons else Refused(reasons[0])
    assert chosen is not None
    if isinstance(chosen, Refused):
        with pytest.raises(Unmet):
            next(part.proposals({}, Steps()))
    else:
        (proposal,) = part.proposals({}, Steps())
        assert proposal.units == tuple(part.free_vfs.pfs[index].name for index in chosen.pfs)


def _near(**pfs_by_interface: str) -> Proposal:
    """Propose nothing, and require PFs for interfaces: i1="pf0 pf2"."""
    narrows: dict[int, Any] = {int(name[1:]): frozenset(pfs.split()) for name, pfs in pfs_by_interface.items()}
    return Proposal((), narrows={"vfs": narrows})


def test_vfs_are_placed_within_what_other_kinds_require(life: Life) -> None:
    _, part = _on_node(life, (2, 2, 2), [{}, {}])
    one = _near(i1="pf1 pf2")
    (proposal,) = part.proposals({"a": one, "b": _near(i1="pf0 pf2", i0="pf1")}, Steps())
    assert proposal.units == ("pf1", "pf2")
    with pytest.raises(Unmet, match="no PF can provide an interface near the pod's other resources"):
        next(part.proposals({"a": one, "c": _near(i1="pf0")}, Steps()))
