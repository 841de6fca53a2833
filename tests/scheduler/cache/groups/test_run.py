"""Which members that have succeeded count: those of the run that is under way, for a scheduler that starts too."""

import random
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest

from scheduler.cache.groups.groups_by_pod import GroupsByPod, MemberState
from scheduler.cache.groups.run import NodeTimes, node_times
from scheduler.kube.group_membership import GroupKey, GroupMembership
from scheduler.kube.objects import Pod

OF = GroupMembership(GroupKey("annotation", "default", "train"), "train")


def _listed(placed: Mapping[str, float], succeeded: Mapping[str, NodeTimes], order: Iterable[str]) -> int:
    """Return how many count for a scheduler that is shown these pods for the first time, in this order."""
    groups = GroupsByPod()
    for uid in order:
        if uid in placed:
            groups.put(uid, OF, MemberState("placed", times=NodeTimes(placed[uid], placed[uid])))
        else:
            groups.put(uid, OF, MemberState("succeeded", times=succeeded[uid]))
    groups.check(placed.__contains__)
    members = groups.get(OF.key)
    return members.counting if members is not None else 0


@pytest.mark.parametrize("seed", range(200))
def test_a_scheduler_that_starts_counts_as_one_that_has_seen_all(seed: int) -> None:
    """Members are placed and succeed one after another; at any time one starts that sees only what there is.

    Where one has failed meanwhile, it may count fewer: nothing shows any more that it was there.
    """
    source, groups, has_failed = random.Random(seed), GroupsByPod(), False
    placed, succeeded = dict[str, float](), dict[str, NodeTimes]()
    for at in range(60):
        now = float(at)
        if placed and source.random() < 0.55:
            uid = source.choice(list(placed))
            bound = placed.pop(uid)
            if seed % 2 and source.random() < 0.3:
                has_failed = True
                groups.drop(uid)
            else:
                succeeded[uid] = NodeTimes(bound, now)
                groups.put(uid, OF, MemberState("succeeded", times=succeeded[uid]))
        else:
            uid, placed[f"u{at}"] = f"u{at}", now
            groups.put(uid, OF, MemberState("placed"))
        groups.check(placed.__contains__)
        members = groups.get(OF.key)
        expected = members.counting if members is not None else 0
        order = [*placed, *succeeded]
        source.shuffle(order)
        found = _listed(placed, succeeded, order)
        assert found == expected or (has_failed and len(placed) <= found < expected)


def test_one_that_succeeds_while_it_is_deleted_counts_for_the_run_of_then() -> None:
    groups = GroupsByPod()
    for uid in ("a", "b"):
        groups.put(uid, OF, MemberState("placed"))
    for uid in ("a", "b"):
        groups.put(uid, OF, MemberState("leaving"))
        groups.put(uid, OF, MemberState("succeeded", times=NodeTimes(8.0, 9.0)))
    groups.put("c", OF, MemberState("placed"))
    members = groups.get(OF.key)
    assert members is not None
    assert (members.counting, members.run.bound_since(8.0), members.run.bound_since(9.0)) == (1, 2, 0)


def _status(**fields: Any) -> Pod:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"}
    metadata = {"name": "p", "creationTimestamp": "1970-01-01T00:00:30Z"}
    return msgspec.convert({"metadata": metadata, "status": {"conditions": [scheduled], **fields}}, Pod)


def test_times_are_those_of_the_binding_and_of_the_last_container() -> None:
    """Without them one that has a node had it when it was created, at least."""
    ends = [{"state": {"terminated": {"finishedAt": f"1970-01-01T00:0{minute}:00Z"}}} for minute in (3, 4, 2)]
    assert node_times(_status(containerStatuses=ends)) == NodeTimes(60.0, 240.0)
    assert node_times(_status(containerStatuses=[{"state": {"terminated": {}}}])) == NodeTimes(60.0, 60.0)
    assert node_times(_status()) == NodeTimes(60.0, 60.0)
    assert node_times(_status(conditions=[])) == NodeTimes(30.0, 30.0)
    assert node_times(msgspec.convert({"metadata": {"name": "p"}}, Pod)) == NodeTimes(0.0, 0.0)
