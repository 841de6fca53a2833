"""A machine, with pods of several priorities on it, or pods whose rates change."""

import pytest

from scheduler.state.machine import Machine
from tests.scheduler.state.preempting import Life, MakeNode, MakePf, MakePod
from tests.scheduler.state.rates.edited_rates import EditedRates


@pytest.fixture
def life(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Life:
    return Life(machine, make_node, make_pf, make_pod)


@pytest.fixture
def edited(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> EditedRates:
    return EditedRates(machine, make_node, make_pf, make_pod)
