"""The condition of a PodGroup: False with the reason while its members wait, True once enough of them are bound."""

from tests.scheduler.group_scene import GroupScene
from tests.scheduler.story import play, stories

TRUE = "Scheduled: members bound: 2, needed: at least 2"
TRAIN = "group train-0..1 kind=PodGroup"


@stories(
    {
        # Deleted and created again, which a watch may show as one change.
        "one that takes another's name does not say why that one waited": f"""
            gang train 2 | nodes n1 | {TRAIN} | wait 0 | gang train 2 uid=u2 | later 1 | tick | writes | wait 15 1 |
            writes > False | says 1 of 2 members fit""",
        "an incomplete one says so": """
            gang train 2 | group train-0 kind=PodGroup | wait 1*5 | writes > False | says group train: 1 of at least 2
            members exist""",
        # In either version: not when all members have gone, nor for later ones that do not fit.
        "stays true (v1alpha2)": f"""
            gang train 2 PodGroupScheduled=True | {TRAIN} | wait 0 1 5 | says group train: | writes""",
        "stays true (v1beta1)": f"""
            gang train 2 PodGroupInitiallyScheduled=True | {TRAIN} | wait 0 1 5 | says group train: | writes""",
        # It is shown members that are bound, and a PodGroup that does not say so; and again after a lost write.
        "a new leader writes what an earlier one has not": f"""
            gang train 2 PodGroupScheduled=False | nodes n1 n2 | group train-0 kind=PodGroup nodeName=n1 | group train-1
            kind=PodGroup nodeName=n2 | wait 1 | writes > {TRUE} | gang train 2 PodGroupScheduled=False | wait 1 |
            writes > {TRUE} | gang train 2 PodGroupScheduled=True | wait 1 | writes""",
        # What was said of the first holds for the second: it is another object.
        "one that is made again has a condition of its own": f"""
            gang train 2 | nodes n1 n2 | {TRAIN} | wait 0 > train-0..1 | wait 1 | writes > {TRUE} | gang train | wait 1
            | writes | gang train 2 uid=u2 | wait 1 | writes > {TRUE}""",
        # What its members were told before it fitted does not stay.
        "a job that is over before its condition is written was scheduled": f"""
            gang train 2 | {TRAIN} | wait 0 | wait 1 | writes > False | nodes n1 n2 | wait 15 > train-0..1 | phase
            Succeeded train-0..1 | wait 1 | writes > {TRUE}""",
        # kube-scheduler writes to its own; a group that has a member of both is reported by this one too.
        "one of which no member names this scheduler is left alone": f"""
            gang train 2 | nodes n1 n2 n3 | group train-0 kind=PodGroup schedulerName=default-scheduler nodeName=n1 |
            group train-1 kind=PodGroup schedulerName=default-scheduler nodeName=n2 | wait 1 5 | writes | phase
            Succeeded train-0 | wait 1 5 | writes | group train-2 kind=PodGroup nodeName=n3 | wait 1 5 | writes >
            {TRUE}""",
    }
)
def test_the_condition_of_a_pod_group(scene: GroupScene, story: str) -> None:
    play(scene, story)


def test_a_pod_group_says_what_its_waiting_members_are_told_and_later_that_it_is_scheduled(scene: GroupScene) -> None:
    """Once a second at most, and nothing twice; True only when enough Bindings have succeeded."""
    play(
        scene,
        "gang train 2 | nodes n1 | group train-0..2 kind=PodGroup | wait 0 | writes | wait 1 | writes > False",
    )
    play(scene, "wait 1 | writes | nodes n2 n3")
    play(scene, "decide 15 > train-0..2")
    for number, written in enumerate(("", TRUE, "")):
        play(scene, f"answer bound train-{number} | wait 1 | writes > {written}")


def test_nothing_is_written_to_a_pod_group_of_scheduler_plugins(scene: GroupScene) -> None:
    """Its status belongs to another controller."""
    play(scene, "coscheduling train 2 | group train-0..1 kind=label | wait 0 1 5 | writes | says group train: 0 of 2")
    play(scene, "nodes n1 n2 | wait 15 > train-0..1 | writes | wait 1 5 | writes")
