"""Which labels find a free volume; if a driver publishes its capacity, none is requested where there is too little."""

from typing import Any

import pytest

from scheduler.cache.volumes.plan import Match, VolumePlan, VolumePlans
from scheduler.cache.volumes.storage_index import PvIndex
from scheduler.kube.storage_objects import PersistentVolume
from tests.scheduler.story import play
from tests.scheduler.volume_store import HOST, Store, VolumeStory, on

NO_ROOM = "1 node(s) did not have enough free storage."


@pytest.mark.parametrize(
    "fields",
    [
        {"capacity": None},
        {"capacity": "much"},
        {"nodeTopology": None},
        {"nodeTopology": {"matchExpressions": [{"key": HOST, "operator": "Near"}]}},
        {"nodeTopology": {"matchExpressions": [{"key": HOST, "operator": "DoesNotExist"}]}},
        {"storageClassName": "another"},
    ],
)
def test_capacity_without_a_matching_topology_does_not_count(fields: Any, store: Store) -> None:
    """In kube-scheduler's words; more capacity requeues the pod."""
    story = VolumeStory(store)
    play(story, "publish | nodes n1 | claim c | pod p c")
    story.room("n1", "4Gi", **fields)
    play(story, f"decide > {NO_ROOM} | later 10 | room n1 4Gi | decide > n1 c=new")


@pytest.mark.parametrize("topology", [{}, {"matchExpressions": [{"key": HOST, "operator": "Exists"}]}])
def test_capacity_may_be_accessible_from_many_nodes(topology: Any, store: Store) -> None:
    story = VolumeStory(store)
    story.room("n1", "4Gi", nodeTopology=topology)
    play(story, "publish | nodes n1 n2 | claim c selected=n2 | pod p c | decide > n2 c=new")


CLAIM = {"namespace": "default", "name": "c"}


def _disk(store: Store, node: str, claim: dict[str, str] | None = None) -> PersistentVolume:
    return store.volume(f"disk-of-{node}", where=on(HOST, node), claim=claim)


def test_a_label_finds_a_free_volume_until_each_is_reserved_or_assumed(store: Store) -> None:
    """A volume may be assumed for several pods that share its claim; labels find those of their own class only."""
    disk, plans = _disk(store, "n1"), VolumePlans()
    index = PvIndex(plans, [disk, _disk(store, "n2"), _disk(store, "n3", CLAIM)])
    plan = VolumePlan("n1", (Match(store.claim("shared"), disk),))

    def assume(*uids: str) -> None:
        index.count_plan(plan, -1)
        for uid in plans.by_uid.keys() - set(uids):
            plans.drop(uid)
        for uid in uids:
            plans.add(uid, plan)
        index.count_plan(plan, 1)

    def free_nodes(storage_class: str = "late") -> list[str]:
        return [node for node in ("n1", "n2", "n3") if index.has_free(storage_class, (HOST, node))]

    assert free_nodes() == ["n1", "n2"]
    assert not free_nodes("another")
    assert not index.has_free("late", None)
    assume("a", "b")
    assume("b")
    index.put(_disk(store, "n1"))
    assert free_nodes() == ["n2"]
    assume()
    assert free_nodes() == ["n1", "n2"]
    index.put(_disk(store, "n2", CLAIM))
    index.remove("disk-of-n1")
    assert not free_nodes()
    index.check()
