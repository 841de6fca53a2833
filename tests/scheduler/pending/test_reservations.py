"""The reservations by itself: for which pods a nomination counts, and which pods are requeued when it ends."""

import pytest

from scheduler.cycle.node_dry_run import assigned_pod_for
from scheduler.cycle.reserved_room import Reservation, rooms_of
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.pending.reservations import Reservations
from scheduler.queue.queue import Queue
from tests.scheduler.conftest import MakePod


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def reservations(queue: Queue) -> Reservations:
    return Reservations(queue)


def _pod_info(make_pod: MakePod, priority: int) -> PodInfo:
    pod_info = read_pod_info(make_pod(spec={"priority": priority}))
    assert isinstance(pod_info, PodInfo)
    return pod_info


def _nomination(pod_info: PodInfo, node: str) -> Reservation:
    return Reservation(pod_info.uid, rooms_of([assigned_pod_for(pod_info, node)]))


def _add_unschedulable(queue: Queue, uid: str, waits_for: ClusterEvent) -> None:
    queue.add(uid, 0, "", 0.0)
    assert queue.pop(0.0) == uid
    queue.add_unschedulable(uid, waits_for)


def test_nominated_pods_count_for_others_of_no_higher_priority(reservations: Reservations, make_pod: MakePod) -> None:
    """As kube-scheduler's filters with nominated pods have it; a pod's own nomination never stands in its way."""
    low, high = _pod_info(make_pod, 1), _pod_info(make_pod, 3)
    reservations.add(_nomination(low, "n1"))
    reservations.add(_nomination(high, "n2"))
    counting = {priority: sorted(reservations.counting_for(_pod_info(make_pod, priority))) for priority in (1, 2, 3, 4)}
    assert counting == {1: ["n1", "n2"], 2: ["n2"], 3: ["n2"], 4: []}
    assert sorted(reservations.counting_for(low)) == ["n2"]


@pytest.mark.parametrize(("node", "requeued"), [("n1", None), ("n2", "waits")])
def test_a_new_nomination_replaces_the_first_and_requeues_pods_if_that_frees_its_node(
    reservations: Reservations, queue: Queue, make_pod: MakePod, node: str, requeued: str | None
) -> None:
    """A pod that is tried again and waits on has set nothing free."""
    pod_info = _pod_info(make_pod, 1)
    reservations.put(_nomination(pod_info, "n1"), 0.0)
    _add_unschedulable(queue, "waits", ClusterEvent.POD_GONE)
    reservations.put(_nomination(pod_info, node), 5.0)
    assert [(one, [room.uid for room in reservations.on(one)]) for one in ("n1", "n2") if reservations.on(one)] == [
        (node, [pod_info.uid])
    ]
    assert queue.pop(5.0) == requeued


def test_a_nomination_rejects_those_of_lower_priority_on_its_node_only(
    reservations: Reservations, queue: Queue, make_pod: MakePod
) -> None:
    """They are requeued whatever they wait for: the room that they waited for is given to another."""
    low, equal, elsewhere = _pod_info(make_pod, 1), _pod_info(make_pod, 2), _pod_info(make_pod, 1)
    reservations.put(_nomination(low, "n1"), 0.0)
    reservations.put(_nomination(equal, "n1"), 0.0)
    reservations.put(_nomination(elsewhere, "n2"), 0.0)
    assert {uid for one in reservations.all() for uid in one.rooms} == {equal.uid, elsewhere.uid}
    reservations.add(_nomination(low, "n1"))
    _add_unschedulable(queue, low.uid, ClusterEvent.NODE_ADDED)
    reservations.put(_nomination(_pod_info(make_pod, 2), "n1"), 5.0)
    assert reservations.of(low.uid) is None
    assert queue.pop(5.0) == low.uid


def test_new_nominations_of_a_group_replace_all_of_its_earlier_ones(
    reservations: Reservations, make_pod: MakePod
) -> None:
    """Also those of members that are not nominated any more; two on one node may differ in priority."""
    key = GroupKey("annotation", "default", "train")
    low, high, other = (_pod_info(make_pod, priority) for priority in (1, 3, 2))
    both = [assigned_pod_for(one, "n1") for one in (low, high)]
    reservations.put(Reservation(key, rooms_of([*both, assigned_pod_for(other, "n2")])), 0.0)
    assert len(reservations) == 3
    reservations.put(Reservation(key, rooms_of(both)), 1.0)
    assert {uid for one in reservations.all() for uid in one.rooms} == {low.uid, high.uid}
