"""A machine and what happens to it, or stories of it."""

import pytest

from scheduler.state.machine import Machine
from tests.scheduler.group_life import MakeNode, MakePf, MakePod
from tests.scheduler.state.cluster import Cluster
from tests.scheduler.state.life import Life
from tests.scheduler.state.rates.edited_rates import EditedRates


@pytest.fixture
def life(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Life:
    return Life(machine, make_node, make_pf, make_pod)


@pytest.fixture
def cluster(life: Life) -> Cluster:
    return Cluster(life)


@pytest.fixture
def edited(life: Life) -> EditedRates:
    return EditedRates(life)
