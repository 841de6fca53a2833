"""A machine that is the extender of a kube-scheduler."""

import pytest

from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.extender.scene import Scene


@pytest.fixture
def scene(machine: Machine, make_pf: MakePf, make_node: MakeNode, make_pod: MakePod) -> Scene:
    return Scene(machine, make_node, make_pf, make_pod)
