"""Which group comes first: by priority and age, whatever the backoffs are and whatever a pod's owner changes."""

from tests.scheduler.group_life import Life
from tests.scheduler.state.groups.group_story import GroupStory
from tests.scheduler.story import play, stories

# Two nodes are full. The older group has failed so often that its backoff is ten seconds; that of the younger is short.
FAIL_OFTEN = " | ".join(f"nodes small-{number}:1 | later 10 | at_once" for number in range(5))
OLD = f"spec priority=5 | fill n1 n2 | spec priority=0 | of old 2 | come old-0 old-1 | {FAIL_OFTEN}"
YOUNG = "of young 2 | come young-0 young-1"


@stories(
    {
        "the older one gets the room that both have waited for": f"""
            {OLD} | {YOUNG} | at_once | delete on-n1 on-n2 | later 1 | at_once old-0 old-1""",
        "the older one gets room that comes in parts, each too small for both": f"""
            {OLD} | {YOUNG} | at_once | delete on-n1 | later 1 | at_once | delete on-n2 | bound old-0 old-1""",
        "the older one gets the room though the younger one comes later": f"""
            {OLD} | delete on-n1 on-n2 | {YOUNG} | later 1 | at_once old-0 old-1""",
        "a younger one of higher priority goes first": f"""
            {OLD.replace("old", "high").replace("=0", "=1")} | spec priority=0 | {YOUNG} | delete on-n1 on-n2
            | later 1 | at_once high-0 high-1""",
        # It waits for one decision about the older one, not for its backoff.
        "a younger one gets room that is of no use to the older one": f"""
            spec priority=5 | fill n1 n2 | spec priority=0 | of old 4 | come old-0..3 | {FAIL_OFTEN}
            | delete on-n1 on-n2 | {YOUNG} | at_once young-0 young-1""",
        "a younger one, but no pod, waits while a slow decision about the older one is set aside": """
            nodes n1:100 n2:100 n3:100 | request 1 | of old 250 | come old-0..249 | steps 1 | later 1 | of young 60
            | come young-0..59 | alone single | at_once single old-0..249 | first single""",
        # After 15 s it may start beside the older one's paused decision. It gives way after each slice of its own.
        "a younger one that has waited long does not overtake the older one between its slices": """
            nodes n1:100 n2:100 n3:100 | request 1 | of old 290 | come old-0..289 | steps 1 | later 1 | of young 280
            | come young-0..279 | steps 1 | later 20 | at_once old-0..289""",
    }
)
def test_of_two_groups_that_wait(life: Life, story: str) -> None:
    play(GroupStory(life), story)


KEPT = """
    fill n1 | spec priority=5 | alone between | at_once | evicted on-n1 | {} | delete on-n1 | spec priority={} | come g
    | later 1"""
BY_SPEC = "name spec=train | pod_group train 1"


@stories(
    {
        # The priority of a PodGroup counts for its members, whatever their own is.
        "goes to a PodGroup above it": f"{KEPT.format(f'{BY_SPEC} 10', 0)} | at_once g | evicted",
        "goes to members above it": f"{KEPT.format(BY_SPEC, 10)} | at_once g | evicted",
        "does not go to a PodGroup below it": f"{KEPT.format(f'{BY_SPEC} 0', 10)} | at_once between | evicted",
        "does not go to an equal PodGroup": f"{KEPT.format(f'{BY_SPEC} 5', 10)} | at_once between | evicted",
    }
)
def test_room_kept_for_a_pod(life: Life, story: str) -> None:
    play(GroupStory(life), story)


# The only room is taken by a pod, which ends below.
FULL = "nodes n1:4 | request 4 | alone last | at_once last | request 2"
OLD_3, YOUNG_5 = "created 3 | of old 2 | come old-0 old-1", "created 5 | of young 2 | come young-0 young-1"
YOUNG_3 = YOUNG_5.replace("young 2", "young 3")
RUNS = "created 6 | request 0 | {} runs@n1 | request 2"


@stories(
    {
        "a member that changes what it asks for keeps its age": f"""
            {OLD_3} | {YOUNG_5} | later 1 | at_once | name annotation={{"name":"old","min":2,"rails":"same"}}
            | join old-0 old-1 | delete last | bound old-0 old-1""",
        "a pod that joins when it has a node": f"""
            {RUNS.format("alone")} | {OLD_3} | {YOUNG_3} | join runs | delete last | bound old-0 old-1""",
        "a pod that was placed when less was asked for": f"""
            of young 1 | {RUNS.format("come")} | {OLD_3} | {YOUNG_3} | delete last | bound old-0 old-1""",
        "a pod that asks for more itself when it has a node": f"""
            of young 1 | {RUNS.format("come")} | {OLD_3} | {YOUNG_3} | join runs | delete last | bound old-0 old-1""",
        "a pod that another scheduler has placed": f"""
            of young 3 | spec schedulerName=default-scheduler | {RUNS.format("come")} | spec schedulerName=mooring
            | {OLD_3} | {YOUNG_3} | delete last | bound old-0 old-1""",
        "but a start that a crash has cut short comes first": f"""
            of young 3 | {RUNS.format("come")} | {OLD_3} | {YOUNG_3} | delete last | bound young-0 young-1""",
        "a PodGroup that asks for more than when the group started": f"""
            created 5 | pod_group young 1 | name spec=young | request 0 | come young-0 | at_once young-0 | request 2
            | {OLD_3} | pod_group young 3 | created 5 | name spec=young | come young-1 young-2 | delete last
            | bound old-0 old-1""",
    }
)
def test_what_changes_later_does_not_put_a_younger_group_first(life: Life, story: str) -> None:
    play(GroupStory(life), f"{FULL} | {story}")
