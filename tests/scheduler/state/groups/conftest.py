"""A machine, and groups on it."""

import pytest

from scheduler.state.machine import Machine
from tests.scheduler.state.groups.life import Life, MakeNode, MakePf, MakePod


@pytest.fixture
def life(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Life:
    return Life(machine, make_node, make_pf, make_pod)
