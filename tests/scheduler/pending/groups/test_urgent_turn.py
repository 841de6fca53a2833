"""A long decision about a group that comes before all others of its priority is not set aside for them."""

import pytest

from scheduler.kube.outcomes import Outcome
from tests.scheduler.group_life import binds
from tests.scheduler.pending.groups.conftest import MakeStory
from tests.scheduler.pending.groups.story import Story
from tests.scheduler.pending.scene import stories


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    """Return a machine whose decisions may be set aside after each member."""
    return make_story(portion=1, hold_s=30.0)


def test_the_room_that_becomes_free_goes_to_the_group_that_has_first_call(story: Story) -> None:
    """Single pods wait all the time, and each node that becomes free wakes one of them too."""
    story.play("nodes n1 n2 n3 n4; place on*4; group four*4; wait 0 32")
    for number in range(4):
        bound = "four*4" if number == 3 else ""
        story.play(f"come next-{number}; wait 10 ->; gone on-{number}; wait 10 -> {bound}")


@stories(
    {
        "single pods of its priority do not come between its members": """
            come single*3; wait 20; gone taking*3; wait 20 -> four-1 four-2 four-3""",
        # They come while the decision is under way, and take the room of one that is tried.
        "a higher priority does not wait": "wait 20; gone taking*3; begin 20; come higher priority=5; wait 0 -> higher",
        # From half a second after the group's turn began, pods take the room until one second is over, in any decision.
        # No room is kept for it yet.
        "others have their turn when they have waited long, and then for as long": """
            wait 10; gone taking*3; begin 10; come first*3; wait 0.5 -> first*3; gone first*3; come second*3;
            wait 0.4 -> second*3; gone second*3; come third*3; wait 0.1 -> four-1 four-2 four-3""",
    }
)
def test_the_rest_of_a_group_that_is_half_placed_gets_the_room_that_becomes_free(story: Story, text: str) -> None:
    """One of four is bound, the Bindings of the rest are refused, and others take their room."""
    story.play("nodes n1 n2 n3 n4; group four*4")
    first, *rest = binds(story.work())
    story.bound(first)
    for decision in rest:
        story.machine.finished(decision, Outcome("forbidden", "a webhook"), story.now)
    story.play(f"come taking*3 priority=9; wait 0 -> taking*3; {text}")
