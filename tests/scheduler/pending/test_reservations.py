"""The reservations by itself: for which pods a nomination counts, and which pods are requeued when it ends."""

import pytest

from scheduler.cycle.node_dry_run import assigned_pod_for
from scheduler.cycle.reserved_room import Reservation, rooms_of
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.group import GroupKey
from scheduler.kube.pod_info import PodInfo
from scheduler.pending.reservations import Reservations
from scheduler.queue.queue import Queue
from tests.scheduler.conftest import MakePod
from tests.scheduler.group_life import pod_info_of

Pods = dict[str, PodInfo]


@pytest.fixture
def pods(make_pod: MakePod) -> Pods:
    """Return pods by uid: the number is their priority, and the letter the node on which they are nominated."""
    names = ("a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2", "c3", "c4", "d2")
    return {name: pod_info_of(make_pod(metadata={"uid": name}, spec={"priority": int(name[1])})) for name in names}


@pytest.fixture
def reservations() -> Reservations:
    return Reservations(Queue())


def _nomination(pod_info: PodInfo, node: str = "") -> Reservation:
    return Reservation(pod_info.uid, rooms_of([assigned_pod_for(pod_info, node or pod_info.uid[0])]))


def _uids(reservations: Reservations) -> set[str]:
    return {uid for one in reservations.all() for uid in one.rooms}


def _add_unschedulable(queue: Queue, uid: str, waits_for: ClusterEvent) -> None:
    queue.add(uid, 0, "", 0.0)
    assert queue.pop(0.0) == uid
    queue.add_unschedulable(uid, waits_for)


def test_nominated_pods_count_for_others_of_no_higher_priority(reservations: Reservations, pods: Pods) -> None:
    """As kube-scheduler's filters with nominated pods have it; a pod's own nomination never stands in its way."""
    for name in ("a1", "b3"):
        reservations.add(_nomination(pods[name]))
    counting = {name: sorted(reservations.counting_for(pods[name])) for name in ("c1", "c2", "c3", "c4", "a1")}
    assert counting == {"c1": ["a", "b"], "c2": ["b"], "c3": ["b"], "c4": [], "a1": ["b"]}


@pytest.mark.parametrize(("node", "requeued"), [("a", None), ("b", "waits")])
def test_a_new_nomination_replaces_the_first_and_requeues_pods_if_that_frees_its_node(
    reservations: Reservations, pods: Pods, node: str, requeued: str | None
) -> None:
    """A pod that is tried again and waits on has set nothing free."""
    queue = reservations._queue
    reservations.put(_nomination(pods["a1"]), 0.0)
    _add_unschedulable(queue, "waits", ClusterEvent.POD_GONE)
    reservations.put(_nomination(pods["a1"], node), 5.0)
    nominated = {one: [room.uid for room in reservations.on(one)] for one in ("a", "b")}
    assert nominated == {"a": [], "b": [], node: ["a1"]}
    assert queue.pop(5.0) == requeued


def test_a_nomination_rejects_those_of_lower_priority_on_its_node_only(reservations: Reservations, pods: Pods) -> None:
    """They are requeued whatever they wait for: the room that they waited for is given to another."""
    for name in ("a1", "a2", "b1"):
        reservations.put(_nomination(pods[name]), 0.0)
    assert _uids(reservations) == {"a2", "b1"}
    reservations.add(_nomination(pods["a1"]))
    _add_unschedulable(reservations._queue, "a1", ClusterEvent.NODE_ADDED)
    reservations.put(_nomination(pods["d2"], "a"), 5.0)
    assert _uids(reservations) == {"a2", "b1", "d2"}
    assert reservations._queue.pop(5.0) == "a1"


def test_new_nominations_of_a_group_replace_all_of_its_earlier_ones(reservations: Reservations, pods: Pods) -> None:
    """Also those of members that are not nominated any more; two on one node may differ in priority."""
    key = GroupKey("annotation", "default", "train")
    for names in (("a1", "a3", "b2"), ("a1", "a3")):
        rooms = [assigned_pod_for(pods[name], name[0]) for name in names]
        reservations.put(Reservation(key, rooms_of(rooms)), 0.0)
        assert _uids(reservations) == set(names)
