"""The scheduling queue: priority, age, backoff, and requeueing by events that may help."""

from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.queue.queue import Queue


@pytest.fixture
def queue() -> Queue:
    return Queue()


def _add(queue: Queue, uids: Iterable[str]) -> None:
    """Add pods whose age is the order of their uids."""
    for uid in uids:
        queue.add(uid, 0, uid, 0.0)


def _pop_all(queue: Queue, now: float) -> list[str]:
    popped = []
    while (uid := queue.pop(now)) is not None:
        popped.append(uid)
    return popped


def test_pods_go_by_priority_then_age(queue: Queue) -> None:
    for uid, priority, created in (("young", 0, "b"), ("old", 0, "a"), ("urgent", 7, "c"), ("idle", -1, "a")):
        queue.add(uid, priority, created, 0.0)
    assert _pop_all(queue, 0.0) == ["urgent", "old", "young", "idle"]


def test_backoff_doubles_from_one_second_to_ten(queue: Queue) -> None:
    """Each attempt waits longer than the one before, up to ten seconds, from the time of the attempt."""
    now, waits = 0.0, []
    queue.add("a", 0, "", now)
    for _ in range(6):
        assert queue.pop(now) == "a"
        queue.retry("a")
        assert queue.pop(now) is None
        ready = queue.next_ready()
        assert ready is not None
        waits.append(ready - now)
        now = ready
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_an_unschedulable_pod_is_requeued_only_by_events_that_it_waits_for(queue: Queue) -> None:
    """A deleted pod does not help one that waits for a node; only its own change helps a malformed one."""
    _add(queue, ("1 node", "2 both", "3 never"))
    for waits_for in (ClusterEvent.NODE, ClusterEvent.NODE | ClusterEvent.POD_GONE, NO_EVENT):
        queue.add_unschedulable(queue.pop(0.0) or "", waits_for)
    queue.move_on_event(ClusterEvent.POD_GONE, 0.0)
    assert _pop_all(queue, 100.0) == ["2 both"]
    queue.move_on_event(ClusterEvent.NODE_LABELS, 100.0)
    assert _pop_all(queue, 100.0) == ["1 node"]
    queue.add("3 never", 0, "", 100.0)
    assert _pop_all(queue, 100.0) == ["3 never"]


def test_a_requeued_pod_still_waits_out_its_backoff(queue: Queue) -> None:
    queue.add("a", 0, "", 0.0)
    queue.pop(0.0)
    queue.add_unschedulable("a", ClusterEvent.NODE)
    queue.move_on_event(ClusterEvent.NODE, 0.0)
    assert queue.pop(0.9) is None
    assert queue.pop(1.0) == "a"


def test_a_deleted_pod_is_never_popped_again(queue: Queue) -> None:
    _add(queue, ("active", "backoff", "unschedulable"))
    assert queue.pop(0.0) == "active"
    queue.retry("active")
    assert queue.pop(0.0) == "backoff"
    queue.add_unschedulable("backoff", ClusterEvent.NODE)
    for uid in ("active", "backoff", "unschedulable"):
        queue.delete(uid)
    queue.move_on_event(ClusterEvent.NODE, 0.0)
    assert _pop_all(queue, 100.0) == []
    assert queue.next_ready() is None


def _fail(
    queue: Queue, now: float, waits_for: ClusterEvent = ClusterEvent.NODE, signature: str | None = None
) -> list[str]:
    """Try all that are ready, each in vain."""
    popped = []
    while (uid := queue.pop(now)) is not None:
        popped.append(uid)
        queue.add_unschedulable(uid, waits_for, signature)
    return popped


def _fail_replicas(queue: Queue, now: float) -> list[str]:
    """Try all that are ready, which have one signature, each in vain."""
    return _fail(queue, now, ClusterEvent.VFS_FREED, "signature")


def test_of_ten_thousand_replicas_one_is_requeued_as_a_probe(queue: Queue) -> None:
    """However many wait, and however often an event comes, one attempt answers for all of them."""
    _add(queue, (f"p{number:05}" for number in range(10_000)))
    assert len(_fail_replicas(queue, 0.0)) == 10_000
    tried = 0
    for second in range(20, 120, 10):
        for _ in range(100):
            queue.move_on_event(ClusterEvent.VFS_FREED, float(second))
        tried += len(_fail_replicas(queue, float(second)))
    assert tried == 10
    queue.check()


def test_a_probe_that_finds_a_node_requeues_the_next(queue: Queue) -> None:
    """Three VFs are free for five replicas: three are placed, the fourth answers for the fifth."""
    places, tried = 3, []
    _add(queue, "abcde")
    _fail_replicas(queue, 0.0)
    queue.move_on_event(ClusterEvent.VFS_FREED, 5.0)
    while (uid := queue.pop(5.0)) is not None:
        tried.append(uid)
        if places:
            places -= 1
            queue.note_placement(uid)
        else:
            queue.add_unschedulable(uid, ClusterEvent.VFS_FREED, "signature")
    assert tried == ["a", "b", "c", "d"]
    assert queue.depths() == {"active": 0, "backoff": 0, "unschedulable": 2, "in_flight": 3}
    queue.check()


@pytest.mark.parametrize("lost", ["deleted", "changed", "refused for good"])
def test_a_probe_without_an_outcome_is_replaced(queue: Queue, lost: str) -> None:
    """The event that requeued it may help the others all the same."""
    _add(queue, "ab")
    _fail_replicas(queue, 0.0)
    queue.move_on_event(ClusterEvent.VFS_FREED, 5.0)
    if lost == "deleted":
        queue.delete("a")
    elif lost == "changed":
        queue.add("a", 0, "a", 5.0)
        assert queue.pop(5.0) in ("a", "b")
    else:
        assert queue.pop(5.0) == "a"
        queue.add_unschedulable("a", NO_EVENT)
    assert len(_pop_all(queue, 5.0)) == 1
    assert queue.depths()["in_flight"] == (2 if lost == "changed" else 1)


def test_a_pods_rejection_holds_for_its_signature(queue: Queue) -> None:
    """Rejected by other plugins than before: all of them wait for other events, and are returned for a new message."""
    _add(queue, "abc")
    _fail_replicas(queue, 0.0)
    queue.move_on_event(ClusterEvent.VFS_FREED, 5.0)
    assert queue.pop(5.0) == "a"
    assert queue.add_unschedulable("a", ClusterEvent.NODE_TAINTS, "signature") == {"b", "c"}
    queue.move_on_event(ClusterEvent.VFS_FREED, 50.0)
    assert _pop_all(queue, 50.0) == []
    queue.move_on_event(ClusterEvent.NODE_TAINTS, 50.0)
    assert _pop_all(queue, 50.0) == ["b"]


def test_a_tried_pod_is_queued_behind_those_added_before_the_attempt(queue: Queue) -> None:
    """Priority, then the time of queueing, as in PrioritySort: one that never fits delays no other."""
    queue.add("old", 0, "a", 0.0)
    assert queue.pop(1.0) == "old"
    queue.add("young", 0, "b", 0.5)
    queue.retry("old")
    assert _pop_all(queue, 5.0) == ["young", "old"]


def _tried(queue: Queue, uid: str, tries: int, created: str, priority: int = 0) -> float:
    """Let a group fail so often that its backoff is long; return when it was tried last."""
    now = 0.0
    queue.add(uid, priority, created, now, since=now)
    for _ in range(tries):
        queue.move_on_event(ClusterEvent.NODE, now)
        ready = queue.next_ready()
        now = now if ready is None else ready
        assert queue.pop(now) == uid
        queue.add_unschedulable(uid, ClusterEvent.NODE)
    return now


def test_groups_that_an_event_brings_back_go_by_age_and_not_by_backoff(queue: Queue) -> None:
    """The older group has failed more often and would wait for longer."""
    now = _tried(queue, "old", 4, "a")
    queue.add("young", 0, "b", now, since=now)
    assert _fail(queue, now) == ["young"]
    queue.move_on_event(ClusterEvent.NODE, now)
    assert _fail(queue, now + 0.9) == []
    assert _fail(queue, now + 1.0) == ["old", "young"]
    queue.check()


def test_a_new_group_and_no_pod_ends_the_backoff_of_an_older_one_that_an_event_can_help(queue: Queue) -> None:
    """It has no backoff; without an event the older one has nothing to hope for, and is not tried."""
    now = _tried(queue, "old", 4, "a")
    queue.add("new", 0, "b", now, since=now)
    assert _fail(queue, now) == ["new"]
    queue.move_on_event(ClusterEvent.NODE, now)
    queue.add("pod", 0, "b", now)
    assert _fail(queue, now) == ["pod"]
    queue.add("newer", 0, "c", now, since=now)
    assert _fail(queue, now) == ["old", "new", "newer"]


def test_backoffs_that_end_early_are_ten_a_second_in_the_long_run(queue: Queue) -> None:
    """Fifty may end at once; then the next group waits for five seconds, and a pod does not."""
    for number in range(50):
        queue.add(f"old-{number:02}", 0, "a", 0.0, since=0.0)
    now = 0.0
    for _ in range(4):
        assert len(_fail(queue, now)) == 50
        queue.move_on_event(ClusterEvent.NODE, now)
        now = queue.next_ready() or 0.0
    assert len(_fail(queue, now)) == 50
    for number in range(3):
        queue.move_on_event(ClusterEvent.NODE, now)
        queue.add(f"new-{number}", 0, "b", now, since=now)
        queue.add(f"pod-{number}", 0, "c", now)
        if number:
            assert _pop_all(queue, now) == [f"pod-{number}"]
            queue.delete(f"pod-{number}")
            assert _pop_all(queue, now + 4.9) == []
            now += 5.1
        assert _fail(queue, now)[:51] == [*(f"old-{old:02}" for old in range(50)), "new-0"]
        queue.delete(f"pod-{number}")


@pytest.mark.parametrize(("priority", "order"), [(1, ["other", "new"]), (-1, ["new"])])
def test_groups_go_by_priority_whichever_is_older(queue: Queue, priority: int, order: list[str]) -> None:
    now = _tried(queue, "other", 4, "z" if priority > 0 else "a", priority)
    queue.move_on_event(ClusterEvent.NODE, now)
    queue.add("new", 0, "b", now, since=now)
    assert _fail(queue, now) == order


def test_the_backoff_of_a_group_whose_write_failed_does_not_end_early(queue: Queue) -> None:
    """A younger group does not make it write more often."""
    queue.add("old", 0, "a", 0.0, since=0.0, backoff_s=8.0)
    queue.add("new", 0, "b", 0.0, since=0.0)
    assert _fail(queue, 0.0) == ["new"]


def test_each_older_group_goes_once_before_a_younger_one(queue: Queue) -> None:
    """Though events bring it back after each try."""
    popped = list[str]()
    now = _tried(queue, "old", 4, "a")
    queue.move_on_event(ClusterEvent.NODE, now)
    queue.add("young", 0, "b", now, since=now)
    queue.add("pod", 0, "c", now)
    while len(popped) < 9 and (uid := queue.pop(now)) is not None:
        popped.append(uid)
        queue.add_unschedulable(uid, ClusterEvent.POD_GONE if uid == "pod" else ClusterEvent.NODE)
        queue.move_on_event(ClusterEvent.NODE, now)
    assert popped == ["old", "young", "pod"]
    queue.check()
    queue.add("newer", 0, "d", now, since=now)
    assert _fail(queue, now + 0.5) == ["old", "young", "newer"], "each group has a turn of its own"


def test_a_group_that_has_been_ready_for_a_quarter_of_a_minute_is_tried_before_older_ones(queue: Queue) -> None:
    """Decisions that take too long do not let it wait for ever."""
    now = _tried(queue, "old", 2, "a")
    queue.add("young", 0, "b", now - 0.5, since=now)
    queue.move_on_event(ClusterEvent.NODE, now)
    assert queue.first(now) is not None
    assert queue.pop(now + 15.0) == "young"


def test_a_group_waits_while_an_older_one_is_decided_about_and_a_pod_does_not(queue: Queue) -> None:
    """A decision that others interrupt keeps its turn among groups."""
    queue.add("old", 0, "a", 0.0, since=0.0)
    assert queue.pop(0.0) == "old"
    queue.add("young", 0, "b", 0.0, since=0.0)
    assert queue.first(0.0) is None
    queue.add("pod", 0, "c", 0.0)
    queue.add("important", 1, "c", 0.0, since=0.0)
    assert _pop_all(queue, 0.0) == ["important", "pod"]
    assert queue.earliest(["old", "important"]) == "important"
    for uid in ("old", "important"):
        queue.add_unschedulable(uid, ClusterEvent.NODE)
    assert _pop_all(queue, 0.0) == ["young"]


class QueueMachine(RuleBasedStateMachine):
    """Any sequence of operations keeps each pod in exactly one place."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.now = 0.0
        self.known: set[str] = set()
        self.popped: set[str] = set()

    @rule(uid=st.sampled_from("abcde"), priority=st.integers(-1, 1))
    def add(self, uid: str, priority: int) -> None:
        self.queue.add(uid, priority, "", self.now)
        self.known.add(uid)
        self.popped.discard(uid)

    @rule(uid=st.sampled_from("vwxyz"), priority=st.integers(-1, 1), backoff_s=st.sampled_from([0.0, 4.0]))
    def add_group(self, uid: str, priority: int, backoff_s: float) -> None:
        self.queue.add(uid, priority, uid, self.now, since=self.now, backoff_s=backoff_s)
        self.known.add(uid)
        self.popped.discard(uid)

    @rule(uid=st.sampled_from("abcdevwxyz"))
    def delete(self, uid: str) -> None:
        self.queue.delete(uid)
        self.known.discard(uid)
        self.popped.discard(uid)

    @rule()
    def pop(self) -> None:
        uid = self.queue.pop(self.now)
        if uid is not None:
            assert uid in self.known - self.popped
            self.popped.add(uid)
        elif not self.popped:
            ready = self.queue.next_ready()
            assert self.queue.depths()["active"] == 0, "something is ready and nothing is popped"
            assert ready is None or ready > self.now

    @precondition(lambda self: self.popped)
    @rule(data=st.data(), waits_for=st.sampled_from([ClusterEvent.NODE, ClusterEvent.POD_GONE, NO_EVENT]))
    def settle(self, data: st.DataObject, waits_for: ClusterEvent) -> None:
        uid = data.draw(st.sampled_from(sorted(self.popped)))
        self.popped.discard(uid)
        if uid in "vwxyz":
            self.queue.add_unschedulable(uid, waits_for)
        elif data.draw(st.booleans()):
            self.queue.add_unschedulable(uid, waits_for, data.draw(st.sampled_from(["signature", "others", None])))
        else:
            self.queue.retry(uid)

    @precondition(lambda self: self.popped)
    @rule(data=st.data())
    def place(self, data: st.DataObject) -> None:
        self.queue.note_placement(data.draw(st.sampled_from(sorted(self.popped))))

    @rule(namespace=st.sampled_from(["one", "other"]))
    def hold(self, namespace: str) -> None:
        entry = self.queue.first(self.now)
        if entry is not None:
            self.queue.block(entry.uid, namespace)
            assert self.queue.first(self.now) is not entry

    @precondition(lambda self: self.queue.blocked_namespaces())
    @rule(most=st.integers(1, 3))
    def release(self, most: int) -> None:
        self.queue.unblock(self.queue.blocked_namespaces()[0], most)

    @rule(cluster_event=st.sampled_from([ClusterEvent.NODE, ClusterEvent.POD_GONE]), seconds=st.floats(0, 20))
    def move_on_event(self, cluster_event: ClusterEvent, seconds: float) -> None:
        self.now += seconds
        self.queue.move_on_event(cluster_event, self.now)

    @invariant()
    def each_pod_has_one_place(self) -> None:
        self.queue.check()
        assert set(self.queue.uids()) == self.known
        assert self.queue.depths()["in_flight"] == len(self.popped)


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueueMachine = QueueMachine.TestCase
