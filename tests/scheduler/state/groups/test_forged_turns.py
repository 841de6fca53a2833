"""What a pod's owner may change at any time makes no group urgent."""

from typing import Any

import pytest

from mooring import names
from mooring.kube.events import Identity, Removed
from scheduler.kube.objects import Pod
from tests.scheduler.group_life import Life, annotated, binds

# 11:00 on the day; pods are created in the hours before.
NOW = 1_767_265_200.0
GROUP = '{"name":"%s","min":%d}'


@pytest.fixture
def full(life: Life) -> Life:
    """A cluster whose only room is taken, by a pod that ends."""
    life.now = NOW
    life.nodes("n1", vfs=4)
    life.place(life.make_pod("last", [{}, {}, {}, {}]))
    return life


def _member(life: Life, name: str, group: str, hour: int, **fields: Any) -> Pod:
    metadata = {"creationTimestamp": f"2026-01-01T{hour:02}:00:00Z"} | fields.pop("metadata", {})
    return life.member(name, group, metadata=metadata, **fields)


def _first_bound(life: Life) -> str:
    """End the pod that takes all room; return which group is bound."""
    (last,) = (one for one in life.machine.cache.assigned_pods() if one.pod.endswith("/last"))
    life.machine.pods(Removed(Identity("last", "default", last.uid)), life.now)
    made = [one for _ in range(8) for one in binds(life.work(2.5))]
    (group,) = {one.pod_info.pod.metadata.name.partition("-")[0] for one in made}
    return group


def _come(life: Life, name: str, count: int, hour: int) -> list[Pod]:
    """Let two members of a group come that needs so many."""
    members = [_member(life, f"{name}-{number}", GROUP % (name, count), hour) for number in range(2)]
    life.see(*members)
    return members


def test_a_member_that_changes_what_it_asks_for_keeps_its_age(full: Life) -> None:
    members = _come(full, "old", 2, 3)
    _come(full, "young", 2, 5)
    full.work(1.0)
    full.see(*(annotated(one, {names.GROUP: '{"name":"old","min":2,"rails":"same"}'}) for one in members))
    assert _first_bound(full) == "old"


OURS, OTHERS = "mooring", "default-scheduler"


@pytest.mark.parametrize(
    ("started_with", "scheduler", "asks_for", "first"),
    [
        (0, OURS, 3, "old"),
        (1, OURS, 0, "old"),
        (1, OURS, 3, "old"),
        (3, OTHERS, 0, "old"),
        (3, OURS, 0, "young"),
    ],
    ids=[
        "it names the group when it has a node",
        "it was placed when less was asked for",
        "it asks for more itself when it has a node",
        "another scheduler has placed it",
        "a crash has cut its start short",
    ],
)
def test_a_pod_on_a_node_makes_a_group_urgent_only_if_a_start_of_it_was_cut_short(
    full: Life, started_with: int, scheduler: str, asks_for: int, first: str
) -> None:
    """A half group comes before older ones, and three members are asked for; a new leader finds the pod on a node."""
    group = GROUP % ("young", started_with) if started_with else ""
    lone = _member(full, "runs", group, 6, request=None, node="n1", spec={"schedulerName": scheduler})
    full.see(lone)
    _come(full, "old", 2, 3)
    _come(full, "young", 3, 5)
    if asks_for:
        full.see(annotated(lone, {names.GROUP: GROUP % ("young", asks_for)}))
    assert _first_bound(full) == first


def test_nor_does_a_pod_group_that_asks_for_more_than_when_it_started(full: Life) -> None:
    named = {"schedulingGroup": {"podGroupName": "young"}}
    full.pod_group("young", schedulingPolicy={"gang": {"minCount": 1}})
    full.place(_member(full, "young-0", "", 5, request=None, spec=named))
    _come(full, "old", 2, 3)
    full.pod_group("young", schedulingPolicy={"gang": {"minCount": 3}})
    full.see(*(_member(full, f"young-{number}", "", 5, spec=named) for number in (1, 2)))
    assert _first_bound(full) == "old"
