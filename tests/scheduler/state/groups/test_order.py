"""Which group comes first: by priority and age, whatever the backoffs are and whatever a pod's owner changes."""

import pytest

from scheduler.state.groups import group_scheduling
from tests.scheduler.group_scene import GroupScene
from tests.scheduler.story import play, stories

# Two nodes are full. The older group has failed so often that its backoff is ten seconds; that of the younger is short.
FAIL_OFTEN = " | ".join(f"nodes small-{number} vfs=1 | wait 10" for number in range(5))
OLD = f"fill n1 n2 priority=5 | group old-0..1 | {FAIL_OFTEN}"
YOUNG = "group young-0..1"
# There is room for one of them. After 15 s the younger one may start beside the older one's paused decision.
BESIDE = "nodes n1..3 vfs=100 | group old-0..289 vfs=1 | steps 1 | group young-0..279 vfs=1 | steps 1"


@stories(
    {
        "the older one gets the room that both have waited for": f"""
            {OLD} | {YOUNG} | wait 0 | delete on-n1 on-n2 | wait 1 > old-0..1""",
        "the older one gets room that comes in parts, each too small for both": f"""
            {OLD} | {YOUNG} | wait 0 | delete on-n1 | wait 1 | delete on-n2 | wait 5 > old-0..1""",
        "the older one gets the room though the younger one comes later": f"""
            {OLD} | delete on-n1 on-n2 | {YOUNG} | wait 1 > old-0..1""",
        "a younger one of higher priority goes first": f"""
            {OLD} | {YOUNG} priority=1 | delete on-n1 on-n2 | wait 1 > young-0..1""",
        # It waits for one decision about the older one, not for its backoff.
        "a younger one gets room that is of no use to the older one": f"""
            {OLD.replace("old-0..1", "old-0..3")} | delete on-n1 on-n2 | {YOUNG} | wait 0 > young-0..1""",
        "a younger one, but no pod, waits while a slow decision about the older one is set aside": """
            nodes n1..3 vfs=100 | group old-0..249 vfs=1 | steps 1 | group young-0..59 vfs=1 | come single vfs=1 |
            wait 0 > old-0..249 single | first single""",
        # It gives way after each slice of its own.
        "a younger one that has waited long does not overtake the older one between its slices": f"""
            {BESIDE} | wait 20 > old-0..289""",
    }
)
def test_of_two_groups_that_wait(scene: GroupScene, story: str) -> None:
    play(scene, story)


def test_a_younger_group_goes_on_before_an_older_one_that_has_taken_many_turns(
    scene: GroupScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_scheduling, "_MANY_TURNS", 50)
    one_by_one = BESIDE.replace("steps 1 | group young", "steps 60 | portion 256 | group young")
    play(scene, f"portion 1 | {one_by_one} | wait 20 > young-0..279")


BETWEEN = "fill n1 | come between priority=5 | wait 0 | victims on-n1"
KEPT = f"{BETWEEN} | gang train 1 {{}} | delete on-n1"
COMES = "group train-0 kind=PodGroup priority={} | wait 1"


@stories(
    {
        # The priority of a PodGroup counts for its members, whatever their own is.
        "goes to a PodGroup above it": f"{KEPT.format('priority=10')} | {COMES.format(0)} > train-0 | victims",
        "goes to members above it": f"{KEPT.format('')} | {COMES.format(10)} > train-0 | victims",
        "does not go to a PodGroup below it": f"{KEPT.format('priority=0')} | {COMES.format(10)} > between | victims",
        "does not go to an equal PodGroup": f"{KEPT.format('priority=5')} | {COMES.format(10)} > between | victims",
        "does not go to a group of which a less important member comes during its decision": f"""
            {BETWEEN} | delete on-n1 | portion 1 | group train-0..1 vfs=1 priority=10 | steps 1 | come train-2
            group=train priority=0 | wait 0 | wait 1 > between""",
    }
)
def test_room_kept_for_a_pod(scene: GroupScene, story: str) -> None:
    play(scene, story)


# The only room is taken by a pod, which ends below.
FULL = "nodes n1 vfs=4 | put last vfs=4"
OLD_3, YOUNG_5 = "group old-0..1 created=3", "group young-0..1 created=5"
YOUNG_3 = f"{YOUNG_5} min=3"
RUNS = "young-2@n1 vfs=0 created=6"


@stories(
    {
        "a member that changes what it asks for keeps its age": f"""
            {OLD_3} | {YOUNG_5} | wait 1 | change old-0..1 annotation={{"name":"old","min":2,"rails":"same"}} | delete
            last | wait 5 > old-0..1""",
        "a pod that joins when it has a node": f"""
            come {RUNS} | {OLD_3} | {YOUNG_3} | change young-2 group=young | delete last | wait 5 > old-0..1""",
        "a pod that was placed when less was asked for": f"""
            group {RUNS} min=1 | {OLD_3} | {YOUNG_3} | delete last | wait 5 > old-0..1""",
        "a pod that asks for more itself when it has a node": f"""
            group {RUNS} min=1 | {OLD_3} | {YOUNG_3} | change young-2 group=young | delete last | wait 5 > old-0..1""",
        "a pod that another scheduler has placed": f"""
            group {RUNS} min=3 schedulerName=default-scheduler | {OLD_3} | {YOUNG_3} | delete last | wait 5 >
            old-0..1""",
        "but a start that a crash has cut short comes first": f"""
            group {RUNS} min=3 | {OLD_3} | {YOUNG_3} | delete last | wait 5 > young-0..1""",
        "a PodGroup that asks for more than when the group started": f"""
            gang young 1 | group young-0 kind=PodGroup vfs=0 created=5 | wait 0 > young-0 | {OLD_3} | gang young 3 |
            come young-1..2 group=young vfs=2 | delete last | wait 5 > old-0..1""",
    }
)
def test_what_changes_later_does_not_put_a_younger_group_first(scene: GroupScene, story: str) -> None:
    play(scene, f"{FULL} | {story}")
