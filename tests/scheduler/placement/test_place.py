"""What `scheduler.placement.place` guarantees, on instances that a person can check by hand."""

import pytest

from scheduler.placement.place import Fit, NoFit, PfCapacity, VfDemand, place
from scheduler.placement.steps import Steps


def demands(*rates: int, pfs: int = ~0) -> list[VfDemand]:
    return [VfDemand(rate, pfs) for rate in rates]


@pytest.mark.parametrize(
    ("rates", "free"),
    [
        ((3, 3, 8), (PfCapacity(9, 9), PfCapacity(9, 6))),
        ((8, 3, 3, 3, 3), (PfCapacity(9, 12), PfCapacity(9, 8))),
        ((8, 3, 3, 3, 3), (PfCapacity(9, 10), PfCapacity(9, 11))),
    ],
)
def test_cases_of_the_author_of_rit_k8s_rdma_that_first_fit_misses_are_placed(
    rates: tuple[int, ...], free: tuple[PfCapacity, ...]
) -> None:
    """Largest first alone, or first fit alone, fails on some of these; a placement exists for all."""
    outcome = place(demands(*rates), free, steps=Steps())

    assert isinstance(outcome, Fit)


def test_the_case_of_rit_k8s_rdmas_author_with_one_vf_left_is_refused() -> None:
    """3, 3 and 8 over 9 and 6 Mb/s need two VFs of the second PF."""
    outcome = place(demands(3, 3, 8), (PfCapacity(9, 9), PfCapacity(1, 6)), steps=Steps())

    assert NoFit("combination") == outcome
