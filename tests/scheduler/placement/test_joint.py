"""The search over several kinds: each proposes beside those before it, and the number of attempts is bounded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from scheduler.constraints.protocol import Beside, Proposal, Unmet
from scheduler.kube.outcomes import Refused
from scheduler.placement.assign import OUT_OF_BUDGET, Placement
from scheduler.placement.joint import place_kinds, section
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import EMPTY


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
    """However long a constraint's proposals go on, the search ends, and reports that it was not finished."""
    endless = Picky("a", [str(number) for number in range(10_000)])
    never = Picky("b", [])
    assert place_kinds([endless, never], EMPTY, budget=20, steps=Steps()) == Refused(OUT_OF_BUDGET)
    assert len(never.seen) == 21


def test_details_stand_beside_the_units() -> None:
    assert section(Proposal(("u",), {"model": "h100"})) == {"units": ["u"], "model": "h100"}
