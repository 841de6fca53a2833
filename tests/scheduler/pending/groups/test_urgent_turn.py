"""A long decision about a group that comes before all others of its priority is not set aside for them."""

import pytest

from tests.scheduler.conftest import MakeScene
from tests.scheduler.group_scene import GroupScene
from tests.scheduler.story import play, stories


@pytest.fixture
def scene(make_scene: MakeScene) -> GroupScene:
    """Return a machine whose decisions may be set aside after each member."""
    return make_scene(GroupScene, portion=1, hold_s=30.0)


def test_the_room_that_becomes_free_goes_to_the_group_that_has_first_call(scene: GroupScene) -> None:
    """Single pods wait all the time, and each node that becomes free wakes one of them too."""
    play(scene, "nodes n1 n2 n3 n4 | put on-0..3 | group four-0..3 | wait 0 32")
    for number in range(4):
        bound = "four-0..3" if number == 3 else ""
        play(scene, f"come next-{number} | wait 10 | delete on-{number} | wait 10 > {bound}")


@stories(
    {
        "single pods of its priority do not come between its members": """
            come single-0..2 | wait 20 | delete taking-0..2 | wait 20 > four-1 four-2 four-3""",
        # They come while the decision is under way, and take the room of one that is tried.
        "a higher priority does not wait": """
            wait 20 | delete taking-0..2 | later 20 | steps 1 | come higher priority=5 | wait 0 > higher""",
        # From half a second after the group's turn began, pods take the room until one second is over, in any decision.
        # No room is kept for it yet.
        "others have their turn when they have waited long, and then for as long": """
            wait 10 | delete taking-0..2 | later 10 | steps 1 | come first-0..2 | wait 0.5 > first-0..2 | delete
            first-0..2 | come second-0..2 | wait 0.4 > second-0..2 | delete second-0..2 | come third-0..2 | wait 0.1 >
            four-1 four-2 four-3""",
    }
)
def test_the_rest_of_a_group_that_is_half_placed_gets_the_room_that_becomes_free(scene: GroupScene, story: str) -> None:
    """One of four is bound, the Bindings of the rest are refused, and others take their room."""
    play(scene, "nodes n1..4 | group four-0..3 | decide > four-0..3 | answer bound four-0 | answer forbidden four-1..3")
    play(scene, f"come taking-0..2 priority=9 | wait 0 > taking-0..2 | {story}")
