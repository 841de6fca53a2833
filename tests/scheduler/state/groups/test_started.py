"""A group that has started takes in members that are made again, one by one, as long as it lives."""

from scheduler.cycle.instructions import Evict
from scheduler.pending.groups.pending_groups import GroupOptions
from scheduler.state.machine import Machine
from tests.scheduler.group_life import HINT, Life
from tests.scheduler.state.groups.group_story import LEADER, THEN, GroupStory
from tests.scheduler.story import play, stories

FOUR = "of train 4 | nodes n1..4"
OWNER = {"of a Job": "owned_by job-1", "bare": ""}
START = f"{FOUR} | OWNER | come r0..3 | bound r0..3 | later 600"


@stories(
    {
        "one that fails after two are done": f"{START} | succeed r0 r1 | fail r3 | THEN | come x | bound x",
        "the last one fails": f"{START} | succeed r0..2 | fail r3 | THEN | come x | bound x",
        "more completions than parallelism": f"{START} | succeed r0..3 | THEN | come x | bound x",
        "two fail, and do not wait for each other": f"{START} | fail r2 r3 | THEN | come x | bound x",
        "all fail, and the group starts as a whole": f"""
            {START} | fail r0..3 | THEN | come b0..2 | bound | come b3 | bound b0..3""",
        "deleted ones count": f"{START} | delete r2 r3 | fail r1 | come x | bound x",
        "deleted ones do not count for a leader that has not seen them": f"""
            {START} | delete r2 r3 | fail r1 | lead | come x y | bound | come z | bound x y z""",
    },
    OWNER=OWNER,
    THEN=THEN,
)
def test_a_member_that_is_made_again_is_placed_alone(life: Life, story: str) -> None:
    play(GroupStory(life), story)


JOB = START.replace("OWNER", "owned_by job-1")
ALL_DONE = f"{JOB} | succeed r0..3"
DELETED = f"{JOB} | succeed r0..2 | job 3 | delete r0..2 | fail r3"
NEXT_RUN = "group train: 3 of at least 4 members exist, {} succeeded under another controller"


@stories(
    {
        "deleted pods count as the Job says": f"{DELETED} | job 3 | come x | bound x",
        "a new leader waits for the Job": f"{DELETED} | LEADER | come x | bound | job 3 | bound x",
        "the group lives no more without the Job": f"""
            {ALL_DONE} | job 4 | delete r0..3 | WITHOUT | come b0..2 | bound | come b3 | bound b0..3""",
        "a rerun starts together": f"""
            {ALL_DONE} | THEN | job 4 | owned_by job-2 | come b0..2 | bound | told b0..2: {NEXT_RUN.format(4)}...
            | come b3 | bound b0..3""",
        "an old rank that still runs counts for a rerun": f"""
            {JOB} | succeed r0..2 | THEN | job 3 | owned_by job-2 | come b0 b1 | bound
            | told b0 b1: {NEXT_RUN.format(3)}... | come b3 | bound b0 b1 b3""",
        "an old rank joins the old run though the rerun is incomplete": f"""
            {JOB} | fail r3 | come x | owned_by job-2 | come b0 | succeed r0 r1 | at_once x | bound
            | told b0: {NEXT_RUN.format(2)} (not counted) ({HINT})""",
        "ranks of a rerun that come during the decision about old ones wait for each other": f"""
            {JOB} | fail r2 r3 | come x y | steps 1 | owned_by job-2 | come b0 | succeed r0 r1 | at_once x y | bound
            | told b0: {NEXT_RUN.format(2)}...""",
        "a relist forgets failed members that are gone": f"{JOB} | fail r3 | list_without r3",
    },
    WITHOUT={"deleted": "lose_job deleted", "not in a list": "lose_job unlisted"},
    THEN=THEN,
    LEADER=LEADER,
)
def test_what_a_job_has_done_counts_for_its_own_pods(life: Life, story: str) -> None:
    play(GroupStory(life), f"portion 1 | {story}")


TWO_JOBS = f"""
    {FOUR} | owned_by job-1 | come a0 a1 | owned_by job-2 | come b0 b1 | bound a0 a1 b0 b1 | later 600
    | succeed a0 a1"""


@stories(
    {
        "one comes again after the other Job is complete": f"{TWO_JOBS} | fail b1 | THEN | come x | bound x",
        "all of a Job come again": f"{TWO_JOBS} | fail b0 b1 | come x y | bound x y",
        # The first Job may have been another start: nothing that lives connects the two.
        "a new leader that sees no live member waits for enough": f"""
            {TWO_JOBS} | fail b0 b1 | lead | come x0 x1 | bound | come y0 y1 | bound x0 x1 y0 y1""",
        "what the other Job has done counts for how many are missing": f"""
            {TWO_JOBS} | lose_node_of a0 a1 | come x | urgent > no | lose_node_of b1 | delete b1 | bound
            | told x: group train: 3 of at least 4 members are placed, and 0 of 1 others fit: ...""",
    },
    THEN=THEN,
)
def test_two_jobs_of_one_start_live_as_one_group(life: Life, story: str) -> None:
    play(GroupStory(life), story)


# The pods of an earlier run stay, as those of a Job do.
RUN = "come f0..3 | bound f0..3 | later 600"
BEFORE = {
    "first run": "",
    "after a failed attempt": f"{RUN} | fail f0..3",
    "after another run": f"{RUN} | succeed f0..3 | later 3600 | owned_by job-2",
    "after a run that this leader has not seen": f"{RUN} | succeed f0..3 | later 3600 | lead | owned_by job-2",
}


@stories(
    {
        "a start that is cut short is completed as a whole": f"""
            {FOUR} | owned_by job-1 | BEFORE | come r0..3 | decide r0..3 | carry_out r0 r1 | refuse changed r2 r3
            | THEN | urgent > yes | lose n4 | bound
            | told r2 r3: group train: 2 of at least 4 members are placed, and 1 of 2 others fit: ... | nodes n4
            | later 15 | bound r2 r3""",
        "a member that is made again joins": f"""
            {FOUR} | owned_by job-1 | BEFORE | come r0..3 | bound r0..3 | fail r1..3 | come x | bound x""",
        "pods that join with a node do not complete a start that was cut short": f"""
            {FOUR} | come r0..3 | decide r0..3 | carry_out r0 r1 | refuse changed r2 r3 | alone a0@other-0 a1@other-1
            | join a0 a1 | fail a0 a1 | lose n4 | later 15 | bound""",
        "pods that join with a node do not count when they have succeeded": f"""
            {FOUR} | alone a0@n1 | join a0 | succeed a0 | come r0..2 | bound | come r3 | bound r0..3""",
        "pods that join with a node neither start a group nor make it half placed": f"""
            {FOUR} | alone a0@n1 a1@n2 a2@n3 | join a0..2 | fail a0 a1 | come r0 r1 | bound | urgent > no | come r2
            | bound r0..2""",
        # Its condition never goes back from True.
        "a PodGroup that is made again does not report members of an earlier run": f"""
            pod_group train 4 uid=u1 | name spec=train | nodes n1..4 | owned_by job-1 | {BEFORE["after another run"]}
            | lose_pod_group train | pod_group train 4 uid=u2 | conditions | come r0..3 | bound r0..3
            | conditions > True: members bound: 4, needed: at least 4""",
    },
    BEFORE=BEFORE,
    THEN=THEN,
)
def test_each_run_starts_as_a_whole(life: Life, story: str) -> None:
    play(GroupStory(life), story)


def test_half_of_a_later_run_is_ended(life: Life) -> None:
    """With ``--end-half-groups``; pods of the run before it do not make it a whole group."""
    story = GroupStory(life.successor(Machine("mooring", group_options=GroupOptions(end_half_s=10))))
    play(story, f"{FOUR} | owned_by job-1 | {BEFORE['after another run']} | come r0..3 | decide r0..3")
    play(story, "carry_out r0 | refuse changed r1..3 | lose n2..4")
    found = [one for _ in range(10) for one in story.life.work(2.0) if isinstance(one, Evict)]
    assert ["only 1 of at least 4 members" in one.reason for one in found] == [True]
