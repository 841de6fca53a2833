"""The scheduling queue: priority, age, backoff, and requeueing by events that may help."""

from functools import reduce
from operator import or_

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.queue.queue import Queue
from tests.scheduler.story import play, stories


class QueueStory:
    """What happens to a queue. Entries are as old as their names say; ``a^7`` has a priority."""

    def __init__(self) -> None:
        self.queue, self.now = Queue(), 0.0

    def at(self, time: str) -> None:
        self.now = float(time)

    def after(self, seconds: str) -> None:
        self.now += float(seconds)

    def next(self) -> None:
        """Let time pass until an entry is ready."""
        self.now = self.queue.next_ready() or 0.0

    def add(self, *pods: str) -> None:
        for pod in pods:
            uid, _, priority = pod.partition("^")
            self.queue.add(uid, int(priority or 0), uid, self.now)

    def group(self, *names: str, backoff_s: float = 0.0) -> None:
        """Add groups that are complete from now on."""
        for name in names:
            uid, _, priority = name.partition("^")
            self.queue.add(uid, int(priority or 0), uid, self.now, since=self.now, backoff_s=backoff_s)

    def write_failed(self, name: str) -> None:
        """Add a group that waits because a write has failed."""
        self.group(name, backoff_s=8.0)

    def delete(self, *uids: str) -> None:
        for uid in uids:
            self.queue.delete(uid)

    def event(self, name: str, times: str = "1") -> None:
        for _ in range(int(times)):
            self.queue.move_on_event(ClusterEvent[name], self.now)

    def pop(self, *uids: str) -> None:
        """Expect that exactly these are ready, in this order."""
        assert [*iter(lambda: self.queue.pop(self.now), None)] == list(uids)

    def pop_one(self, uid: str) -> None:
        assert self.queue.pop(self.now) == uid

    def retry(self, uid: str) -> None:
        self.queue.retry(uid)

    def placed(self, uid: str) -> None:
        self.queue.note_placement(uid)

    def reject(self, uid: str, events: str, signature: str | None = None, *others: str) -> None:
        """Let a pod wait for events, and expect that those of these other pods change with its."""
        waits_for = reduce(or_, (ClusterEvent[name] for name in events.split("+") if name != "-"), NO_EVENT)
        assert self.queue.add_unschedulable(uid, waits_for, signature) == set(others)

    def fail(self, *uids: str, events: str = "NODE", signature: str | None = None) -> None:
        """Expect that exactly these are ready, in this order, and let each wait for a node."""
        for uid in uids:
            self.pop_one(uid)
            self.reject(uid, events, signature)
        self.pop()

    def fail_alike(self, *uids: str) -> None:
        """Do so with pods of one signature that wait for VFs."""
        self.fail(*uids, events="VFS_FREED", signature="alike")

    def fail_often(self, name: str, tries: str) -> None:
        """Let a group fail so often that its backoff is long."""
        uid = name.partition("^")[0]
        self.group(name)
        for _ in range(int(tries)):
            self.event("NODE")
            self.now = max(self.now, self.queue.next_ready() or 0.0)
            self.fail(uid)

    def earliest(self, uid: str, *uids: str) -> None:
        """Expect which of these groups comes first."""
        assert self.queue.earliest(uids) == uid

    def ready(self, time: str = "") -> None:
        """Expect when the next entry is ready; empty for never."""
        assert self.queue.next_ready() == (float(time) if time else None)

    def depths(self, *depths: str) -> None:
        """Expect how many are active, in backoff, unschedulable and in flight."""
        assert list(self.queue.depths().values()) == list(map(int, depths))


PROBES = " | ".join(f"at {20 + 10 * n} | event VFS_FREED 100 | fail_alike {10_000 + n}" for n in range(10))
LONG = [
    f"event NODE | group {n} | add p{n} | pop p{n} | after 4.9 | pop | after 0.2 | fail 100..149 200..{n}"
    for n in (201, 202)
]
PROBE = " | fail_alike {} | at 5 | event VFS_FREED | "


@stories(
    {
        "pods go by priority, then age": "add c b d^7 a^-1 | pop d b c a",
        "backoff doubles from one second to ten": """
            add a | pop a | retry a | pop | ready 1 | at 1 | pop a | retry a | ready 3 | at 3 | pop a | retry a
            | ready 7 | at 7 | pop a | retry a | ready 15 | at 15 | pop a | retry a | ready 25 | at 25 | pop a
            | retry a | ready 35""",
        # A deleted pod does not help one that waits for a node; only its own change helps a malformed one.
        "a pod is requeued only by events that it waits for": """
            add a b c | pop a b c | reject a NODE | reject b NODE+POD_GONE | reject c - | event POD_GONE | at 100
            | pop b | event NODE_LABELS | pop a | add c | pop c""",
        "a requeued pod waits out its backoff": "add a | fail a | event NODE | at 0.9 | pop | at 1 | pop a",
        "a deleted pod is never popped again": """
            add a b c | pop_one a | retry a | pop_one b | reject b NODE | delete a b c | event NODE | at 100 | pop
            | ready""",
        # Priority, then the time of queueing, as in PrioritySort: one that never fits delays no other.
        "a tried pod is queued behind those added before the attempt": """
            add b | at 0.5 | add a | at 1 | pop_one b | retry b | at 5 | pop a b""",
        "a probe that finds a node requeues the next": (
            "add a b c d e" + PROBE.format("a b c d e") + "pop_one a | placed a | pop_one b | placed b | pop_one c | "
            "placed c | pop_one d | reject d VFS_FREED alike | pop | depths 0 0 2 3"
        ),
        # The event that requeued it may help the others all the same.
        "a probe that is deleted is replaced": "add a b" + PROBE.format("a b") + "delete a | pop b | depths 0 0 0 1",
        "a probe that changes is replaced": "add a b" + PROBE.format("a b") + "add a | pop b a | depths 0 0 0 2",
        "a probe that is refused for good is replaced": (
            "add a b" + PROBE.format("a b") + "pop_one a | reject a - | pop b | depths 0 0 1 1"
        ),
        # All of them wait for other events, and are returned for a new message.
        "a rejection by other plugins holds for the signature": (
            "add a b c"
            + PROBE.format("a b c")
            + "pop a | reject a NODE_TAINTS alike b c | at 50 | event VFS_FREED | pop | "
            "event NODE_TAINTS | pop b"
        ),
        "groups that an event brings back go by age and not by backoff": """
            fail_often a 4 | group b | fail b | event NODE | after 0.9 | fail | after 0.2 | fail a b""",
        # It has no backoff. Without an event the older one has nothing to hope for, and is not tried.
        "a new group, but no pod, ends the backoff of an older one that an event can help": """
            fail_often a 4 | group b | fail b | event NODE | add p | fail p | group c | fail a b c""",
        "a younger group of lower priority waits": "fail_often z^1 4 | event NODE | group a | fail z a",
        "a younger group of higher priority does not": "fail_often a^-1 4 | event NODE | group b | fail b",
        "a younger group does not end the backoff of a failed write": "write_failed a | group b | fail b",
        # Though events bring it back after each try.
        "an older group goes once before a younger one, and has a turn of its own": """
            fail_often a 4 | event NODE | group b | add p | pop_one a | reject a NODE | event NODE | pop_one b
            | reject b NODE | event NODE | pop_one p | reject p POD_GONE | event NODE | pop | group d | after 0.5
            | fail a b d""",
        "of ten thousand replicas, one answers for all, however often an event comes": f"""
            add 10000..19999 | fail_alike 10000..19999 | {PROBES}""",
        # Fifty may end at once; then the next group waits for five seconds, and a pod does not.
        "backoffs that end early are ten a second in the long run": f"""
            group 100..149 | {" | ".join(["fail 100..149 | event NODE | next"] * 4)} | fail 100..149 | event NODE
            | group 200 | fail 100..149 200 | {" | ".join(LONG)}""",
        # Decisions that take too long do not let it wait for ever.
        "a group that has been ready for 15 s goes before older ones": """
            fail_often a 2 | after -0.5 | group b | after 0.5 | event NODE | after 15 | pop_one b""",
        # A decision that others interrupt keeps its turn among groups.
        "a group, but no pod, waits while an older one is decided about": """
            group a | pop_one a | group b | pop | add p | group c^1 | pop c p | earliest c a c | reject a NODE
            | reject c NODE | pop b""",
    }
)
def test_what_is_tried_next(story: str) -> None:
    scene = QueueStory()
    play(scene, story)
    scene.queue.check()


class QueueMachine(RuleBasedStateMachine):
    """Any sequence of operations keeps each pod in exactly one place."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.now = 0.0
        self.known: set[str] = set()
        self.popped: set[str] = set()

    @rule(uid=st.sampled_from("abcdevwxyz"), priority=st.integers(-1, 1), backoff_s=st.sampled_from([0.0, 4.0]))
    def add(self, uid: str, priority: int, backoff_s: float) -> None:
        if uid in "vwxyz":
            self.queue.add(uid, priority, uid, self.now, since=self.now, backoff_s=backoff_s)
        else:
            self.queue.add(uid, priority, "", self.now)
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


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestQueueMachine = QueueMachine.TestCase
