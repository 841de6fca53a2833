"""With ``--group-hold`` a group that has waited long enough has first call on what becomes free."""

from tests.scheduler.conftest import MakeScene
from tests.scheduler.group_scene import GroupScene
from tests.scheduler.story import play, stories

# A group comes for which there is no room, and waits until it has first call.
HOLD = "group pair-0..1 | wait 60 1"
FULL = f"nodes n1 n2 | put a b | {HOLD}"
HALF = f"nodes n1 | put a | nodes n2 | {HOLD}"


@stories(
    {
        # Each single pod comes before another one ends.
        "a group grows with what becomes free": f"""
            {FULL} | come single-0 | wait 10 | delete a | wait 10 | come single-1 | wait 10 | delete b | wait 10 >
            pair-0..1""",
        # No backoff leaves what becomes free to a pod of the same priority.
        "a group that was just tried comes first": f"""
            {FULL} | delete a | wait 0 | come single | delete b | wait 0 > pair-0..1""",
        "it holds as early though it changes while it waits": """
            nodes n1 | put a | nodes n2 | group pair-0..1 | wait 20 | come late group=pair | wait 11 | owner pair""",
        # Room that is free already is kept from then on, and until then it is not; so is what others have yet to leave.
        "the hold begins when its time is over though nothing happens": """
            nodes n1 | put a | nodes n2 | group pair-0..1 | wait 0 | due > 1 | kept | wait 31 | kept n1 n2 | says 2 not
            enough free RDMA VFs. Room is kept for the group as it becomes free.$ | come single | wait 1""",
        "what members keep does not count against each other": """
            nodes n2 | put a | nodes n1 vfs=4 | group train-0..2 | wait 60 1 | kept n1 n1 n2 | delete a | wait 1 >
            train-0..2""",
        "a higher priority does not heed it": f"{HALF} | come urgent priority=7 | wait 1 > urgent",
        "only the oldest of the highest priority holds": """
            nodes n1 | put a priority=5 | nodes n2 | group low-0..1 | wait 1 | group old-0..1 priority=5 | wait 1 |
            group new-0..1 priority=5 | wait 60 1 | owner old | kept n1 n2""",
        "what is kept is free again when the group goes": f"""
            {HALF} | come single | wait 1 | delete pair-0 | wait 2 2 > single | owner nobody | kept""",
        # A younger pod of the same priority does not get the nodes: the victim would have gone in vain.
        "a group whose victims are leaving keeps its nominations when another one holds": """
            nodes n1 | put equal priority=10 | nodes n2 | put lower | group pair-0..1 priority=10 | wait 31 1 | owner
            pair | group large-0..8 priority=20 preemptionPolicy=Never nodeSelector=no | wait 25 | delete equal | wait 1
            | victims lower | terminate lower | come single priority=10 | wait 10 1 | owner large | kept n1 n2""",
        # What it keeps makes no event that would bring it back.
        "a group that holds is not tried again without an event": """
            nodes n1 | put a | nodes n2 n3 | group four-0..3 | wait 60 1 | kept n2 n3 | quiet 1*21""",
        "room is kept by the PodGroup's priority if that is higher than the members'": """
            gang train 2 priority=10 | nodes n1 n2 | put a b | group train-0..1 kind=PodGroup preemptionPolicy=Never |
            wait 1 30 | delete a | wait 2 | come between priority=5 preemptionPolicy=Never | wait 1""",
        "and also if that is lower": """
            gang train 2 priority=0 | nodes n1 n2 | put a b | group train-0..1 kind=PodGroup priority=10
            preemptionPolicy=Never | wait 1 30 | delete a | wait 2 | come between priority=5 preemptionPolicy=Never |
            wait 1 > between""",
        # It has started, so that one of the two that wait takes the room of the one that is done.
        "a half group keeps first call when a placed member succeeds": """
            nodes n1 n2 n3 n4 | group train-0..3 | wait 0 > train-0..3 | delete train-2 train-3 | put other-0..1 | come
            again-0..1 group=train | wait 0 60 | owner train | phase Succeeded train-0 | wait 1 > again-0 | on train-0 |
            owner train | come late | wait 1""",
    }
)
def test_first_call(make_scene: MakeScene, story: str) -> None:
    play(make_scene(GroupScene, hold_s=30.0), story)


def test_without_it_pods_that_need_less_keep_a_group_out(make_scene: MakeScene) -> None:
    singles = (f"come single-{one} | wait 10 | delete {end} | wait 10 > single-{one}" for one, end in enumerate("ab"))
    play(make_scene(GroupScene), f"{FULL} | {' | '.join(singles)}")
    play(make_scene(GroupScene), f"nodes n-0..3 | put small-0..7 vfs=1 | {HOLD} | stream 200 > small-next-199")
