"""A machine and what happens to it, or stories of it."""

import pytest

from scheduler.state.machine import Machine
from tests.scheduler.group_life import MakeNode, MakePf, MakePod
from tests.scheduler.state.bindings import Bindings
from tests.scheduler.state.life import Life
from tests.scheduler.state.preemptions import Preemptions
from tests.scheduler.state.rates.edited_rates import EditedRates

pytest.register_assert_rewrite("tests.scheduler.state.groups.story")


@pytest.fixture
def life(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Life:
    return Life(machine, make_node, make_pf, make_pod)


@pytest.fixture
def edited(life: Life) -> EditedRates:
    return EditedRates(life)


@pytest.fixture
def preemptions(life: Life) -> Preemptions:
    return Preemptions(life)


@pytest.fixture
def bindings(life: Life) -> Bindings:
    return Bindings(life)
