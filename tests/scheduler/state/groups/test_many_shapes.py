"""A group of many shapes that differ only in selector, MAC or GUID is scheduled as any other."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from mooring.annotations.pf_terms import Allow
from scheduler.cache.groups.group_sources import MOST_SHAPES
from scheduler.kube.objects import Pod
from tests.scheduler.group_life import Life, binds, orders, told

_COUNT = MOST_SHAPES + 6


def _nodes(life: Life, count: int = _COUNT, **pf: Any) -> None:
    for number in range(count):
        life.show_node(f"n{number}", life.make_pf(0, 1, **pf), labels={"host": f"n{number}"})


def _member(life: Life, number: int, settings: Mapping[str, str], spec: Mapping[str, Any]) -> Pod:
    text = json.dumps({"name": "train", "min": _COUNT})
    return life.member(f"train-{number}", text, request=[dict(settings)], spec=dict(spec))


def test_members_with_a_node_selector_each(life: Life) -> None:
    """As an exclusive JobSet makes them: each goes to its own node."""
    _nodes(life)
    for number in range(_COUNT):
        life.see(_member(life, number, {}, {"nodeSelector": {"host": f"n{_COUNT - 1 - number}"}}))
    nodes = {one.pod_info.pod.metadata.name: one.assigned.node for one in binds(life.work())}
    assert nodes == {f"train-{number}": f"n{_COUNT - 1 - number}" for number in range(_COUNT)}


@pytest.mark.parametrize("setting", ["mac", "guid"])
def test_members_with_an_address_each(life: Life, setting: str) -> None:
    """All are bound with their own; and one that none of the nodes may have keeps all from starting."""
    link = "infiniband" if setting == "guid" else "ethernet"
    _nodes(life, link=link, can=frozenset({setting}), allow=Allow(mac=True, guid=True))
    beginning = "02:00:00:00:00:" if setting == "mac" else "02:00:00:00:00:00:00:"
    for number in range(_COUNT):
        life.see(_member(life, number, {setting: f"{beginning}{number:02x}"}, {}))
    decided = binds(life.work())
    assert len(decided) == _COUNT
    assert all(f"{beginning}" in json.dumps(one.annotations) for one in decided)


def test_one_member_without_a_place_keeps_all_from_starting(life: Life) -> None:
    _nodes(life)
    life.place(life.make_pod("low", [{}], spec={"nodeSelector": {"host": "n0"}}))
    for number in range(_COUNT):
        life.see(_member(life, number, {}, {"nodeSelector": {"host": f"n{number}"}, "priority": 10}))
    decided = life.work()
    assert (binds(decided), orders(decided)) == ([], [])
    assert "preemption is not supported for a group with more than 64 different requests." in told(decided)["train-0"]
