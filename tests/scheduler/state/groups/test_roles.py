"""A minimum per role: a group starts only if each role has its number of members."""

from collections import Counter
from random import Random

import pytest

from tests.scheduler.group_scene import GroupScene
from tests.scheduler.story import play, stories

ROLES = "name=ray role_from=type roles=head:1,worker:3 vfs=1 cpu=1"
HEAD, WORKER = f"{ROLES} labels=type:head", f"{ROLES} labels=type:worker"
TWO_HEADS, TWO_WORKERS = (role.replace("head:1,worker:3", "head:2,worker:2") for role in (HEAD, WORKER))
# There are VFs for all; a head with 32 CPUs does not fit.
SMALL = "nodes n1 vfs=8"
STARTED = f"{SMALL} | group head-0 {HEAD} | group worker-0..2 {WORKER} | wait 0 > head-0 worker-0..2"


@stories(
    {
        # More than all that it needs fit, but the head does not.
        "a group waits for a role whatever other members fit": f"""
            nodes n1..6 cpu=2 | group head-0 {HEAD} cpu=32 | group worker-0..5 {WORKER} | wait 0 | told head-0
            worker-0..5: group ray: 0 of 4 members fit: ... | nodes big cpu=64 | wait 15 > head-0 worker-0..5""",
        "a group with too few pods of a role is incomplete": f"""
            {SMALL} | group worker-0..4 {WORKER} | wait 0 | wait 5 | told worker-0..4: group ray: 3 of at least 4
            members exist, 1 of role 'head' missing... | group head-0 {HEAD} | wait 0 > head-0 worker-0..4""",
        # The roles need four: any two more.
        "members of a role beyond its minimum count towards a larger min": f"""
            nodes n1 vfs=5 | group worker-0..4 {WORKER} min=6 | group head-0 {HEAD} min=6 | wait 0 | nodes n2 vfs=1 |
            wait 15 > head-0 worker-0..4""",
        "a recreated member of any role joins a started group": f"""
            {STARTED} | delete head-0 worker-0 | come worker-7 group=ray | wait 0 > worker-7""",
        "a group of which members of each role have succeeded is not short": f"""
            {STARTED} | phase Succeeded head-0 worker-0 | come worker-3 group=ray nodeSelector=no:where | wait 0 |
            urgent > no""",
        # A new leader finds enough workers, but no head: no worker is placed before all heads have room.
        "no worker is placed before the head": f"""
            {SMALL} | group worker-0@n1 worker-1@n1 worker-2@n1 worker-3@n1 {WORKER} vfs=0 | come worker-4..5 group=ray
            vfs=1 | group head-0 {HEAD} cpu=32 | wait 15 | nodes big-0 vfs=1 cpu=32 | wait 15 > head-0 worker-4..5""",
        "no worker is placed before both heads": f"""
            {SMALL} | group worker-0@n1 worker-1@n1 worker-2@n1 {TWO_WORKERS} vfs=0 | come worker-3 group=ray vfs=1 |
            group head-0..1 {TWO_HEADS} cpu=32 | wait 15 | nodes big-0 vfs=1 cpu=32 | wait 15 | nodes big-1 vfs=1 cpu=32
            | wait 15 > head-0..1 worker-3""",
    }
)
def test_each_role_has_its_minimum(scene: GroupScene, story: str) -> None:
    play(scene, story)


@pytest.mark.parametrize("seed", range(60))
def test_a_group_starts_if_and_only_if_each_role_can_have_its_minimum(scene: GroupScene, seed: int) -> None:
    """By count: heads need a whole large node, workers a VF anywhere."""
    random = Random(seed)
    large, small = random.randint(0, 2), random.randint(0, 5)
    for name, count, cpu in (("large", large, "32"), ("small", small, "2")):
        scene.nodes(*(f"{name}-{number}" for number in range(count)), vfs=1, cpu=cpu)
    heads, workers = random.randint(0, 2), random.randint(0, 5)
    roles = [("head", heads, f"{HEAD} cpu=32"), ("worker", workers, WORKER)]
    for role, count, fields in random.sample(roles, 2):
        if count:
            play(scene, f"group {role}-1..{count} {fields}")
    counts = Counter(name.partition("-")[0] for name in scene.decide().split())
    can_start = heads >= 1 and workers >= 3 and large >= 1 and large + small >= 4
    assert bool(counts) == can_start
    assert not counts or (counts["head"] >= 1 and counts["worker"] >= 3)
