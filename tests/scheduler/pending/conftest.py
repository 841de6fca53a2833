"""A machine with pods that wait."""

import pytest

from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.pending.scene import Scene


@pytest.fixture
def scene(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Scene:
    return Scene(machine, make_node, make_pf, make_pod)
