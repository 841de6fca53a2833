"""With ``--end-half-groups`` a group that stays half placed is ended; without it, it waits for ever."""

from tests.scheduler.conftest import MakeScene
from tests.scheduler.group_scene import GroupScene
from tests.scheduler.story import play, stories

# One of three members is lost with its node, and there is no room for the member that is made in its place.
PLACED = "nodes n1 n2 n3 | group train-0..2 | wait 0 > train-0..2"
HALF = f"{PLACED} | lose train-2 | delete train-2 | come again group=train | wait 1 | evicts"
OF_POD_GROUP = f"gang train 3 | {HALF.replace('train-0..2', 'train-0..2 kind=PodGroup', 1)}"
ENDED = "evicts train-0 train-1"


@stories(
    {
        "after the time, not before, and are told why": f"""
            {HALF} | wait 59 | evicts | wait 2 | {ENDED} | evict > HalfGroup evicted: group train: only 2 of at least
            3 members have been placed for 60 s""",
        "again after its whole time if it was completed in between": f"""
            {HALF} | wait 59 | nodes n4 | wait 1 > again | wait 120 | evicts | lose again | delete again | come next
            group=train | wait 1 59 | evicts | wait 2 | {ENDED}""",
        "a minute after an eviction that was refused": f"""
            {HALF} | wait 61 | refuse_evictions | wait 30 | evicts | wait 31 | {ENDED}""",
        # A pod that is being deleted does not count as placed.
        "not again while members end": f"{HALF} | wait 61 | terminate train-0 train-1 | wait 120 | evicts",
        # One that ends, member by member, is no half group.
        "not without a waiting member": f"{PLACED} | phase Failed train-0 | delete train-1 | wait 0 120 | evicts",
        # When its PodGroup is there again, the time begins again.
        "not while nobody knows how many it needs": f"""
            {OF_POD_GROUP} | wait 59 | gang train | wait 120 | evicts | gang train 3 | wait 1 59 | evicts | wait 2 |
            {ENDED}""",
    }
)
def test_the_placed_members_of_a_group_that_stays_half_are_evicted(make_scene: MakeScene, story: str) -> None:
    play(make_scene(GroupScene, end_half_s=60.0), story)


def test_without_the_option_a_half_group_waits(make_scene: MakeScene) -> None:
    play(make_scene(GroupScene), f"{HALF} | wait 6000 | evicts")
