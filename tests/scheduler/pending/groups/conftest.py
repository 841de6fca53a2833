"""A machine, and groups on it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scheduler.pending.groups.pending_groups import GroupOptions
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.group_life import Life, life

__all__ = ["life"]
MakeLife = Callable[..., Life]


@pytest.fixture
def make_life(make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Iterator[MakeLife]:
    """Make machines with options for groups, which are checked when the test ends."""
    lives: list[Life] = []

    def make(*, portion: int | None = None, **options: Any) -> Life:
        portions: Any = {} if portion is None else {"portion": portion}
        machine = Machine("mooring", group_options=GroupOptions(**options), **portions)
        lives.append(Life(machine, make_node, make_pf, make_pod))
        return lives[-1]

    yield make
    for one in lives:
        one.machine.check()
