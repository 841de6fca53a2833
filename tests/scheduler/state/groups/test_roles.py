"""A minimum per role: a group starts only if each role has its number of members."""

import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from scheduler.kube.objects import Pod
from tests.scheduler.group_life import Life, binds, bound_names, changed, told

_ROLES = {"head": 1, "worker": 3}


def _members(life: Life, role: str, count: int, cpu: str = "1", first: int = 0, **group: Any) -> list[Pod]:
    text = json.dumps({"name": "ray", "role_from": "type", "roles": _ROLES, **group})
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    metadata = {"labels": {"type": role}}
    pods = [
        life.member(f"{role}-{number}", text, request=[{}], metadata=metadata, spec=spec)
        for number in range(first, first + count)
    ]
    life.see(*pods)
    return pods


def test_a_group_waits_for_a_role_whatever_other_members_fit(life: Life) -> None:
    """Six workers fit, which are more than all that it needs; the head does not."""
    life.nodes("n1", "n2", "n3", "n4", "n5", "n6", allocatable={"cpu": "2"})
    _members(life, "head", 1, cpu="32")
    _members(life, "worker", 6)
    decided = life.work()
    assert binds(decided) == []
    assert next(iter(told(decided).values())).startswith("group ray: 0 of 4 members fit: ")
    life.nodes("big", allocatable={"cpu": "64"})
    assert bound_names(life.work(15.0)) == ["head-0", *(f"worker-{number}" for number in range(6))]


def test_a_group_with_too_few_pods_of_a_role_is_incomplete(life: Life) -> None:
    life.nodes("n1", "n2", "n3", "n4", vfs=8)
    _members(life, "worker", 5)
    messages = told(life.work() + life.work(5.0))
    assert set(messages.values()) == {next(iter(messages.values()))}
    assert next(iter(messages.values())).startswith(
        "group ray: 3 of at least 4 members exist, 1 of role 'head' missing"
    )
    _members(life, "head", 1)
    assert len(bound_names(life.work())) == 6


def test_members_of_a_role_beyond_its_minimum_count_towards_a_larger_min(life: Life) -> None:
    """``min`` 6 of roles that need 4: any two more."""
    life.nodes("n1", vfs=5)
    _members(life, "worker", 5, min=6)
    _members(life, "head", 1, min=6)
    assert bound_names(life.work()) == []
    life.nodes("n2", vfs=1)
    assert len(bound_names(life.work(15.0))) == 6


def test_a_recreated_member_of_any_role_joins_a_started_group(life: Life) -> None:
    life.nodes("n1", vfs=8)
    _members(life, "head", 1)
    _members(life, "worker", 3)
    pods = {pod.metadata.name: pod for pod in life.bound(*binds(life.work()))}
    life.gone(pods["head-0"], pods["worker-0"])
    _members(life, "worker", 1, first=7)
    assert bound_names(life.work()) == ["worker-7"]


@pytest.mark.parametrize(
    ("heads", "workers", "running", "roles"), [(1, 6, 4, _ROLES), (2, 4, 3, {"head": 2, "worker": 2})]
)
def test_members_that_a_role_lacks_are_placed_together_whoever_else_is_bound(
    life: Life, heads: int, workers: int, running: int, roles: dict[str, int]
) -> None:
    """A new leader finds enough workers, but no head: no worker is placed before all heads have room."""
    life.nodes("n1", vfs=8, allocatable={"cpu": "8"})
    pods = [*_members(life, "worker", workers, roles=roles), *_members(life, "head", heads, cpu="32", roles=roles)]
    life.gone(*pods)
    runs: dict[str, Any] = {"spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
    life.see(*(changed(pod, **runs) for pod in pods[:running]), *pods[running:])
    for number in range(heads):
        assert bound_names(life.work(15.0)) == []
        life.nodes(f"big-{number}", vfs=1, allocatable={"cpu": "32"})
    assert {f"head-{number}" for number in range(heads)} <= set(bound_names(life.work(15.0)))


@pytest.mark.parametrize("seed", range(60))
def test_a_group_starts_if_and_only_if_each_role_can_have_its_minimum(life: Life, seed: int) -> None:
    """By count: heads need a whole large node, workers a VF anywhere."""
    random = Random(seed)
    large, small = random.randint(0, 2), random.randint(0, 5)
    for number in range(large):
        life.nodes(f"large-{number}", vfs=1, allocatable={"cpu": "32"})
    for number in range(small):
        life.nodes(f"small-{number}", vfs=1, allocatable={"cpu": "2"})
    heads, workers = random.randint(0, 2), random.randint(0, 5)
    for role, count, cpu in random.sample([("head", heads, "32"), ("worker", workers, "1")], 2):
        _members(life, role, count, cpu)
    counts = Counter(name.partition("-")[0] for name in bound_names(life.work()))
    can_start = heads >= 1 and workers >= 3 and large >= 1 and large + small >= 4
    assert bool(counts) == can_start
    assert not counts or (counts["head"] >= 1 and counts["worker"] >= 3)
