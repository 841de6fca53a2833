"""A pod that is decided and waits for its volumes: what it holds meanwhile, and how the wait ends."""

from collections.abc import Callable

import pytest

from mooring.kube.events import Event, Removed, Synced, Unreadable
from scheduler.cycle.instructions import PreBind, PreBindResult, Report
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import BOUND
from scheduler.kube.storage_objects import PersistentVolumeClaim
from scheduler.pending.volume_waits import PATIENCE_S
from tests.scheduler.group_life import binds, changed, changed_event, identity
from tests.scheduler.story import play, stories
from tests.scheduler.volume_store import Store, VolumeStory, messages, pre_binds

# A pod with one claim is decided about, whose volume is to be made, or gets a volume that is there.
LATE = "nodes n1 | claim c | pod p c | plan > n1"
STATIC = "by_hand | volume v {where} | claim c | pod p c | plan > n1"
CHECK = "failed to check provisioning pvc: persistentvolumeclaim"
MISPLACED = 'pv "v" node affinity doesn\'t match node "n1": no matching NodeSelectorTerms'


class WaitStory(VolumeStory):
    """Pods that wait for their volumes, and the last decisions about them."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.machine, self.orders = store.machine, list[PreBind]()

    def lose_claim(self, claim: str) -> None:
        self.store.remove(PersistentVolumeClaim, claim)

    def unlist_claims(self) -> None:
        self.machine.handle(PersistentVolumeClaim, Synced(()), self.store.now)

    def plan(self) -> str:
        """Run, and return the nodes that pods are to be bound to once they have their volumes."""
        self.orders = pre_binds(self.store.work())
        return " ".join(order.plan.node for order in self.orders)

    def wrote(self, **names: str) -> None:
        """Let our writes succeed, with versions that are so many later than the last."""
        versions = {name: str(self.store._version + int(later)) for name, later in names.items()}
        for order in self.orders:
            self.store.prepared(order, **versions)

    def refuse(self, *fault: str) -> None:
        """Let the API server refuse our write."""
        (order,) = self.orders
        found = self.machine.finished(order, PreBindResult(fault=" ".join(fault)), self.store.now)
        assert messages(found) == {f"binding volumes: {' '.join(fault)}"}

    def bound(self) -> str:
        """Run: the pods are bound as it was decided, or wait on."""
        found = self.store.work()
        assert found in ([], [order.decision for order in self.orders])
        for bind in binds(found):
            (report,) = self.machine.finished(bind, BOUND, self.store.now)
            assert isinstance(report, Report)
            assert report.reason == "Scheduled"
        return " ".join(bind.assigned.node for bind in binds(found))

    def free(self) -> None:
        assert not any(self.machine.cache.assigned(order.decision.pod_info.uid) for order in self.orders)

    def due(self) -> str:
        return str(self.machine.next_due())


@pytest.fixture
def scene(store: Store) -> WaitStory:
    return WaitStory(store)


@stories(
    {
        # The claim must be bound to a known volume, and show that the volume controller has finished.
        "is bound when its volume is made": f"""
            {LATE} | wrote default/c=1 | bound | claim c selected=n1 | bound | claim c v selected=n1 | bound | volume v
            on=n1 for=c | bound > n1""",
        "is bound when claim and static volume are bound": f"""
            nodes n1 | {STATIC.format(where="")} | wrote v=1 | volume v for=c | bound | claim c v | bound > n1""",
        # That volume may be usable elsewhere only.
        "is requeued if the claim got another volume than planned": f"""
            nodes n1 n2 | {STATIC.format(where="on=n1")} | wrote | volume v on=n1 for=c | volume w on=n2 for=c | claim c
            w | decide > binding volumes: PVC "c" is bound to pv "w", not to "v" | later 10 | decide > n2""",
        # Nothing of claim or volume changes; the pod would never get its disk there.
        "waits no longer for a node whose labels exclude the volume": f"""
            nodes n1 disk=x | {STATIC.format(where="disk=x")} | wrote | volume v disk=x for=c | nodes n1 disk=x a=b |
            bound | nodes n1 disk=y | decide > binding volumes: {MISPLACED}""",
        # A late watch shows the claim without its node: that is not the provisioner's refusal.
        "ignores an old version of the claim": f"{LATE} | wrote default/c=5 | claim c | bound",
        "holds nothing after a write that is refused": f"""
            {LATE} | refuse the object has been modified | free | later 10 | plan > n1""",
        # No other pod gets the resources, nor the volume that the API does not show as taken yet.
        "has its node and volume reserved": """
            nodes n1 | by_hand | volume v | claim c | claim d | pod p c cpu=5 | plan > n1 | pod q d | decide > 1 node(s)
            didn't find available persistent volumes to bind. | pod r cpu=5 | decide > 1 Insufficient cpu.""",
        # Before the API shows that choice; both are bound when the volume is made.
        "goes to the node that was chosen for its claim with another pod": """
            nodes n1 n2 | claim c | pod p c | pod q c | plan > n1 n1 | wrote | claim c v selected=n1 | volume v | bound
            > n1 n1""",
        # So that the loop wakes up for it; what is touched is due at once.
        "is due at its deadline": f"""
            {LATE} | due > {PATIENCE_S} | wrote default/c=1 | due > 0.0 | bound | due > {PATIENCE_S}""",
    }
)
def test_a_pod_that_waits(scene: WaitStory, story: str) -> None:
    play(scene, story)


@pytest.mark.parametrize(
    ("story", "why"),
    [
        ("claim c selected=n1 | bound | claim c", 'provisioning failed for PVC "c"'),
        ("lose_claim c", f'{CHECK} "c" not found'),
        ("claim c selected=n1 deleted=yes", f'{CHECK} "c" is being deleted'),
        ("claim c uid=another", f'{CHECK} "c" not found'),
        ("unlist_claims", f'{CHECK} "c" not found'),
        ("lose n1", 'failed to get node "n1": node "n1" not found'),
        ("volume v on=n2 | claim c v selected=n1", MISPLACED),
        (f"later {PATIENCE_S}", "context deadline exceeded"),
    ],
)
def test_a_plan_that_cannot_be_fulfilled_ends_the_reservation(scene: WaitStory, story: str, why: str) -> None:
    """The pod gets kube-scheduler's message, is tried again after its backoff, and holds nothing until then."""
    play(scene, f"{LATE} | wrote default/c=1 | bound | {story}")
    (report,) = scene.machine.tick(scene.store.now)
    assert isinstance(report, Report)
    assert report.message == f"binding volumes: {why}"
    play(scene, "free")
    assert scene.machine.pending_pods.depths()["backoff"] == 1
    scene.store.now += 10.0
    assert scene.store.work() or scene.machine.pending_pods.depths()["unschedulable"] == 1


def test_waits_that_end_together_end_in_the_order_of_uids(scene: WaitStory) -> None:
    """In no other: their pods are tried again in that order, and equal clusters give equal decisions."""
    claims = "abcdefgh"
    pods = " | ".join(f"claim {name} | pod p-{name} {name}" for name in claims)
    choices = " | ".join(f"claim {name} selected=n1" for name in claims)
    play(scene, f"nodes n1 | {pods} | plan > {' '.join(['n1'] * 8)} | wrote | {choices} | bound | unlist_claims")
    told = [report.pod.metadata.uid for report in scene.machine.tick(0.0) if isinstance(report, Report)]
    assert told == sorted(order.decision.pod_info.uid for order in scene.orders)
    assert len(told) == len(claims)


def test_an_answer_to_an_earlier_decision_does_not_count_for_a_later_one(scene: WaitStory) -> None:
    play(scene, f"{LATE} | lose_claim c")
    (first,) = scene.orders
    scene.store.prepared(first, "not found")
    scene.store.work()
    play(scene, "claim c | later 10 | plan > n1")
    scene.store.prepared(first, "late")
    scene.store.prepared(first)
    play(scene, "claim c v selected=n1 | volume v | bound | wrote | bound > n1")


ENDINGS: dict[str, Callable[[Pod], Event[Pod]]] = {
    "removed": lambda pod: Removed(identity(pod)),
    "unreadable": lambda pod: Unreadable(identity(pod), "x"),
    "not listed": lambda _: Synced(()),
    "deleting": lambda pod: changed_event(changed(pod, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})),
    "ended": lambda pod: changed_event(changed(pod, status={"phase": "Failed"})),
    "bound elsewhere": lambda pod: changed_event(changed(pod, spec={"nodeName": "n2"})),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_pod_that_ends_while_it_waits_leaves_nothing_behind(ending: str, scene: WaitStory) -> None:
    """Resources and assumed volumes are free again, and no pod is bound later."""
    play(scene, f"{LATE} | nodes n2 | wrote")
    pod = scene.pods["p"]
    scene.machine.handle(Pod, ENDINGS[ending](pod), 0.0)
    play(scene, "claim c v selected=n1 | volume v | bound")
    assigned = scene.machine.cache.assigned(pod.metadata.uid)
    assert (assigned.node if assigned is not None else "") == ("n2" if ending == "bound elsewhere" else "")
    assert scene.machine.next_due() is None
