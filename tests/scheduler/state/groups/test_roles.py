"""A minimum per role: a group starts only if each role has its number of members."""

import json
from collections import Counter
from random import Random

import pytest

from tests.scheduler.group_life import Life, bound_names
from tests.scheduler.state.groups.group_story import GroupStory
from tests.scheduler.story import play, stories


def _role(role: str, heads: int = 1, workers: int = 3, **more: int) -> str:
    """Return the step after which members have this role."""
    group = {"name": "ray", "role_from": "type", "roles": {"head": heads, "worker": workers}, **more}
    return f"name annotation={json.dumps(group, separators=(',', ':'))} type={role}"


HEAD, WORKER = _role("head"), _role("worker")
HEAD_OF_6, WORKER_OF_6 = _role("head", min=6), _role("worker", min=6)
TWO_HEADS, TWO_WORKERS = _role("head", heads=2, workers=2), _role("worker", heads=2, workers=2)
# There are VFs for all; a head with 32 CPUs does not fit.
SMALL = "request 1 | nodes n1:8 | cpu 1"


@stories(
    {
        # More than all that it needs fit, but the head does not.
        "a group waits for a role whatever other members fit": f"""
            request 1 | cpu 2 | nodes n1..6 | cpu 32 | {HEAD} | come head-0 | cpu 1 | {WORKER} | come worker-0..5
            | at_once | told head-0 worker-0..5: group ray: 0 of 4 members fit: ... | cpu 64 | nodes big | later 15
            | at_once head-0 worker-0..5""",
        "a group with too few pods of a role is incomplete": f"""
            {SMALL} | {WORKER} | come worker-0..4 | at_once | bound | told worker-0..4: group ray: 3 of at least 4
            members exist, 1 of role 'head' missing... | {HEAD} | come head-0 | at_once head-0 worker-0..4""",
        # The roles need four: any two more.
        "members of a role beyond its minimum count towards a larger min": f"""
            request 1 | nodes n1:5 | cpu 1 | {WORKER_OF_6} | come worker-0..4 | {HEAD_OF_6} | come head-0 | at_once
            | nodes n2:1 | later 15 | at_once head-0 worker-0..4""",
        "a recreated member of any role joins a started group": f"""
            {SMALL} | {HEAD} | come head-0 | {WORKER} | come worker-0..2 | at_once head-0 worker-0..2
            | delete head-0 worker-0 | come worker-7 | at_once worker-7""",
        "a group of which members of each role have succeeded is not short": f"""
            {SMALL} | {HEAD} | come head-0 | {WORKER} | come worker-0..2 | at_once head-0 worker-0..2
            | succeed head-0 worker-0 | spec nodeSelector={{"no":"where"}} | come worker-3 | at_once | urgent > no""",
        # A new leader finds enough workers, but no head: no worker is placed before all heads have room.
        "no worker is placed before the head": f"""
            {SMALL} | request 0 | {WORKER} | come worker-0@n1 worker-1@n1 worker-2@n1 worker-3@n1 | request 1
            | come worker-4 worker-5 | {HEAD} | cpu 32 | come head-0 | later 15 | at_once | nodes big-0:1 | later 15
            | at_once head-0 worker-4 worker-5""",
        "no worker is placed before both heads": f"""
            {SMALL} | request 0 | {TWO_WORKERS} | come worker-0@n1 worker-1@n1 worker-2@n1 | request 1
            | come worker-3 | {TWO_HEADS} | cpu 32 | come head-0 head-1 | later 15 | at_once | nodes big-0:1
            | later 15 | at_once | nodes big-1:1 | later 15 | at_once head-0 head-1 worker-3""",
    }
)
def test_each_role_has_its_minimum(life: Life, story: str) -> None:
    play(GroupStory(life), story)


@pytest.mark.parametrize("seed", range(60))
def test_a_group_starts_if_and_only_if_each_role_can_have_its_minimum(life: Life, seed: int) -> None:
    """By count: heads need a whole large node, workers a VF anywhere."""
    random = Random(seed)
    large, small = random.randint(0, 2), random.randint(0, 5)
    for name, count, cpu in (("large", large, "32"), ("small", small, "2")):
        life.nodes(*(f"{name}-{number}" for number in range(count)), vfs=1, allocatable={"cpu": cpu})
    heads, workers = random.randint(0, 2), random.randint(0, 5)
    story, roles = GroupStory(life), [(HEAD, "head", heads, "32"), (WORKER, "worker", workers, "1")]
    for step, role, count, cpu in random.sample(roles, 2):
        play(story, f"request 1 | {step} | cpu {cpu}")
        story.come(*(f"{role}-{number}" for number in range(count)))
    counts = Counter(name.partition("-")[0] for name in bound_names(life.work()))
    can_start = heads >= 1 and workers >= 3 and large >= 1 and large + small >= 4
    assert bool(counts) == can_start
    assert not counts or (counts["head"] >= 1 and counts["worker"] >= 3)
