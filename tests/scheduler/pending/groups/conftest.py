"""Machines with groups, by their options."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scheduler.cycle.preemption.select_victims import PORTION
from scheduler.pending.groups.pending_groups import GroupOptions
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.pending.groups.story import Story

MakeStory = Callable[..., Story]


@pytest.fixture
def make_story(make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Iterator[MakeStory]:
    """Make machines with options for groups, which are checked when the test ends."""
    stories: list[Story] = []

    def make(*, portion: int = PORTION, **options: Any) -> Story:
        machine = Machine("mooring", group_options=GroupOptions(**options), portion=portion)
        stories.append(Story(machine, make_node, make_pf, make_pod))
        return stories[-1]

    yield make
    for story in stories:
        story.machine.check()
