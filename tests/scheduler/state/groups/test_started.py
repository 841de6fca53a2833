"""A group that has started takes in members that are made again, one by one, as long as it lives."""

import pytest

from mooring.kube.events import Identity, Removed, Synced
from scheduler.kube.workload_objects import Job
from tests.scheduler.conftest import MakeScene
from tests.scheduler.group_life import HINT, show_object
from tests.scheduler.group_scene import LEADER, THEN, GroupScene
from tests.scheduler.story import play, stories

FOUR = "nodes n1..4"
START = f"{FOUR} | group train-0..3 OWNER | wait 5 > train-0..3 | later 600"
# A member that is made again.
AGAIN = "come again group=train"


class Jobs(GroupScene):
    """A scene with the Jobs that own the pods, by their uids."""

    def job(self, uid: str, count: str) -> None:
        """Show how many pods have succeeded by the Job's status."""
        metadata = {"name": "train", "namespace": "default", "uid": uid}
        show_object(self.machine, Job, {"metadata": metadata, "status": {"succeeded": int(count)}}, self.now)

    def lose_job(self, uid: str) -> None:
        self.machine.handle(Job, Removed(Identity("train", "default", uid)), self.now)

    def unlist_jobs(self) -> None:
        self.machine.handle(Job, Synced[Job](()), self.now)


@pytest.fixture
def scene(make_scene: MakeScene) -> Jobs:
    return make_scene(Jobs)


@stories(
    {
        "one that fails after two are done": f"""
            {START} | phase Succeeded train-0..1 | phase Failed train-3 | THEN | {AGAIN} | wait 5 > again""",
        "the last one fails": f"""
            {START} | phase Succeeded train-0..2 | phase Failed train-3 | THEN | {AGAIN} | wait 5 > again""",
        "more completions than parallelism": f"""
            {START} | phase Succeeded train-0..3 | THEN | {AGAIN} | wait 5 > again""",
        "two fail, and do not wait for each other": f"""
            {START} | phase Failed train-2..3 | THEN | {AGAIN} | wait 5 > again""",
        "all fail, and the group starts as a whole": f"""
            {START} | phase Failed train-0..3 | THEN | come next-0..2 group=train | wait 5 | come next-3 group=train |
            wait 5 > next-0..3""",
        "deleted ones count": f"""
            {START} | delete train-2..3 | phase Failed train-1 | {AGAIN} | wait 5 > again""",
        "deleted ones do not count for a leader that has not seen them": f"""
            {START} | delete train-2..3 | phase Failed train-1 | lead | come next-0..1 group=train | wait 5 | come
            next-2 group=train | wait 5 > next-0..2""",
    },
    OWNER={"of a Job": "owner=job-1", "bare": ""},
    THEN=THEN,
)
def test_a_member_that_is_made_again_is_placed_alone(scene: Jobs, story: str) -> None:
    play(scene, story)


JOB = START.replace("OWNER", "owner=job-1")
ALL_DONE = f"{JOB} | phase Succeeded train-0..3"
DELETED = f"""
    {JOB} | phase Succeeded train-0..2 | job job-1 3 | delete train-0..2 | phase Failed train-3"""
OF_JOB_2 = "group=train owner=job-2"
NEXT_RUN = "group train: 3 of at least 4 members exist, {} succeeded under another controller"


@stories(
    {
        "deleted pods count as the Job says": f"{DELETED} | job job-1 3 | {AGAIN} | wait 5 > again",
        "a new leader waits for the Job": f"{DELETED} | LEADER | {AGAIN} | wait 5 | job job-1 3 | wait 5 > again",
        "the group lives no more without the Job": f"""
            {ALL_DONE} | job job-1 4 | delete train-0..3 | WITHOUT | come next-0..2 group=train | wait 5 | come next-3
            group=train | wait 5 > next-0..3""",
        "a rerun starts together": f"""
            {ALL_DONE} | THEN | job job-1 4 | come next-0..2 {OF_JOB_2} | wait 5 | told next-0..2:
            {NEXT_RUN.format(4)}... | come next-3 {OF_JOB_2} | wait 5 > next-0..3""",
        "an old rank that still runs counts for a rerun": f"""
            {JOB} | phase Succeeded train-0..2 | THEN | job job-1 3 | come next-0..1 {OF_JOB_2} | wait 5 | told
            next-0..1: {NEXT_RUN.format(3)}... | come next-2 {OF_JOB_2} | wait 5 > next-0..2""",
        "an old rank joins the old run though the rerun is incomplete": f"""
            {JOB} | phase Failed train-3 | {AGAIN} | come next-0 {OF_JOB_2} | phase Succeeded train-0..1 | wait 0 >
            again | wait 5 | told next-0: {NEXT_RUN.format(2)} (not counted) ({HINT})""",
        "ranks of a rerun that come during the decision about old ones wait for each other": f"""
            {JOB} | phase Failed train-2..3 | come again-0..1 group=train | steps 1 | come next-0 {OF_JOB_2} | phase
            Succeeded train-0..1 | wait 0 > again-0..1 | wait 5 | told next-0: {NEXT_RUN.format(2)}...""",
        "a relist forgets failed members that are gone": f"{JOB} | phase Failed train-3 | unlist train-3",
    },
    WITHOUT={"deleted": "lose_job job-1", "not in a list": "unlist_jobs"},
    THEN=THEN,
    LEADER=LEADER,
)
def test_what_a_job_has_done_counts_for_its_own_pods(scene: Jobs, story: str) -> None:
    play(scene, f"portion 1 | {story}")


TWO_JOBS = f"""
    {FOUR} | group train-0..1 min=4 owner=job-1 | come train-2..3 {OF_JOB_2} | wait 5 > train-0..3 | later 600"""
ONE_DONE = f"{TWO_JOBS} | phase Succeeded train-0..1"


@stories(
    {
        "one comes again after the other Job is complete": f"""
            {ONE_DONE} | phase Failed train-3 | THEN | come again {OF_JOB_2} | wait 5 > again""",
        "all of a Job come again": f"""
            {ONE_DONE} | phase Failed train-2..3 | come again-0..1 {OF_JOB_2} | wait 5 > again-0..1""",
        # The first Job may have been another start: nothing that lives connects the two.
        "a new leader that sees no live member waits for enough": f"""
            {ONE_DONE} | phase Failed train-2..3 | lead | come again-0..1 {OF_JOB_2} | wait 5 | come again-2..3
            {OF_JOB_2} | wait 5 > again-0..3""",
        "what the other Job has done counts for how many are missing": f"""
            {ONE_DONE} | lose train-0 train-1 | come again {OF_JOB_2} | urgent > no | lose train-3 | delete train-3 |
            wait 5 | told again: group train: 3 of at least 4 members are placed, and 0 of 1 others fit: ...""",
    },
    THEN=THEN,
)
def test_two_jobs_of_one_start_live_as_one_group(scene: Jobs, story: str) -> None:
    play(scene, story)


# The pods of an earlier run stay, as those of a Job do.
FIRST_RUN = "group first-0..3 name=train owner=job-1 | wait 5 > first-0..3 | later 600"
SECOND_RUN = f"{FIRST_RUN} | phase Succeeded first-0..3 | later 1h | group train-0..3 owner=job-2"
RUN = {
    "first run": "group train-0..3 owner=job-1",
    "after a failed attempt": f"{FIRST_RUN} | phase Failed first-0..3 | group train-0..3 owner=job-1",
    "after another run": SECOND_RUN,
    "after a run that this leader has not seen": SECOND_RUN.replace("| group", "| lead | group"),
}
CUT_SHORT = "decide > train-0..3 | answer bound train-0..1 | answer changed train-2..3"
JOIN = 'annotation={"name":"train","min":4}'


@stories(
    {
        "a start that is cut short is completed as a whole": f"""
            {FOUR} | RUN | {CUT_SHORT} | THEN | urgent > yes | lose n4 | wait 5 | told train-2..3: group train: 2 of at
            least 4 members are placed, and 1 of 2 others fit: ... | nodes n4 | wait 20 > train-2..3""",
        "a member that is made again joins": f"""
            {FOUR} | RUN | wait 5 > train-0..3 | phase Failed train-1..3 | {AGAIN} | wait 5 > again""",
        "pods that join with a node do not complete a start that was cut short": f"""
            {FOUR} | group train-0..3 | {CUT_SHORT} | come late-0@other-0 late-1@other-1 | change late-0..1 {JOIN} |
            phase Failed late-0..1 | lose n4 | wait 20""",
        "pods that join with a node do not count when they have succeeded": f"""
            {FOUR} | come late@n1 | change late {JOIN} | phase Succeeded late | group train-0..2 min=4 | wait 5 | come
            train-3 group=train | wait 5 > train-0..3""",
        "pods that join with a node neither start a group nor make it half placed": f"""
            {FOUR} | come late-0@n1 late-1@n2 late-2@n3 | change late-0..2 {JOIN} | phase Failed late-0..1 | group
            train-0..1 min=4 | wait 5 | urgent > no | come train-2 group=train | wait 5 > train-0..2""",
        # Its condition never goes back from True.
        "a PodGroup that is made again does not report members of an earlier run": f"""
            gang train 4 | {FOUR} | {FIRST_RUN.replace("owner", "kind=PodGroup owner")} | phase Succeeded first-0..3 |
            later 1h | gang train | gang train 4 uid=u2 | wait 1*3 | writes | come train-0..3 {OF_JOB_2} | wait 5 >
            train-0..3 | wait 1*3 | writes > Scheduled: members bound: 4, needed: at least 4""",
    },
    RUN=RUN,
    THEN=THEN,
)
def test_each_run_starts_as_a_whole(scene: Jobs, story: str) -> None:
    play(scene, story)


def test_half_of_a_later_run_is_ended(make_scene: MakeScene) -> None:
    """With ``--end-half-groups``; pods of the run before it do not make it a whole group."""
    scene = make_scene(GroupScene, end_half_s=10)
    play(scene, f"{FOUR} | {SECOND_RUN} | decide > train-0..3 | answer bound train-0 | answer changed train-1..3")
    play(scene, "lose n2 n3 n4 | wait 2*10")
    assert ["only 1 of at least 4 members" in one.reason for one in scene.evictions] == [True]
