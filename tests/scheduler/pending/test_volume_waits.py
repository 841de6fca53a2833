"""A pod that is decided and waits for its volumes: what it holds meanwhile, and how the wait ends."""

import pytest

from mooring.kube.events import Identity, Removed, Synced, Unreadable
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import PreBind, PreBindResult, Report
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import BOUND
from scheduler.kube.storage_objects import PersistentVolumeClaim
from scheduler.pending.volume_waits import PATIENCE_S
from tests.scheduler.group_life import binds
from tests.scheduler.pending.scene import Steps, stories
from tests.scheduler.volume_store import HOST, Store, messages, on, pre_binds

# A pod with one claim is decided about, whose volume is to be made, or gets a volume that is there.
LATE = "nodes n1; claim c; pod c; planned n1"
STATIC = "static; volume v {where}; claim c; pod c; planned n1"
CHECK = "failed to check provisioning pvc: persistentvolumeclaim"
MISPLACED = 'pv "v" node affinity doesn\'t match node "n1": no matching NodeSelectorTerms'


class VolumeStory(Steps):
    """Pods with volumes and claims, and the last decisions about those that wait."""

    def __init__(self, store: Store) -> None:
        self.store, self.machine = store, store.machine
        self.step_nodes, self.step_claim = store.nodes, store.claim
        self.orders: list[PreBind] = []

    def text_told(self, message: str) -> None:
        assert self.store.message() == message

    def step_lose(self, node: str) -> None:
        self.machine.nodes(Removed(Identity(node)), self.store.now)

    def step_static(self) -> None:
        self.store.storage_class("late", "kubernetes.io/no-provisioner")

    def step_volume(self, name: str, taken: str = "", host: str = "", disk: str = "") -> None:
        claim = {"namespace": "default", "name": taken, "uid": f"u-{taken}"} if taken else None
        where = on(HOST, host) if host else on("disk", disk) if disk else None
        self.store.volume(name, claim=claim, where=where)

    def step_gone(self, claim: str) -> None:
        self.store.gone(PersistentVolumeClaim, claim)

    def step_unlisted(self) -> None:
        self.machine.handle(PersistentVolumeClaim, Synced(()), self.store.now)

    def step_pod(self, *claims: str, cpu: str = "0") -> None:
        self.store.pod(*claims, spec={"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]})

    def step_planned(self, node: str, count: str = "1") -> None:
        self.orders = pre_binds(self.store.run())
        assert [order.plan.node for order in self.orders] == [node] * int(count)

    def step_wrote(self, **names: str) -> None:
        """Let our writes succeed, with versions that are so many later than the last."""
        versions = {name.replace("_", "/"): str(self.store._version + int(later)) for name, later in names.items()}
        for order in self.orders:
            self.store.prepared(order, **versions)

    def step_refused(self) -> None:
        """Let the API server refuse our write."""
        (order,) = self.orders
        found = self.machine.finished(order, PreBindResult(fault="the object has been modified"), self.store.now)
        assert messages(found) == {"binding volumes: the object has been modified"}

    def step_time(self, now: str) -> None:
        self.store.now = float(now)

    def step_bound(self, *nodes: str) -> None:
        """Run: the pods are bound as it was decided, or wait on."""
        found = self.store.run()
        assert found == ([order.decision for order in self.orders] if nodes else [])
        assert [bind.assigned.node for bind in binds(found)] == list(nodes)
        for bind in binds(found):
            (report,) = self.machine.finished(bind, BOUND, self.store.now)
            assert isinstance(report, Report)
            assert report.reason == "Scheduled"

    def step_free(self) -> None:
        assert not any(self.machine.cache.assigned(order.decision.pod_info.uid) for order in self.orders)

    def step_chosen(self, node: str) -> None:
        assert self.store.choose() == node


@pytest.fixture
def story(store: Store) -> VolumeStory:
    return VolumeStory(store)


@stories(
    {
        # The claim must be bound to a known volume, and show that the volume controller has finished.
        "is bound when its volume is made": f"""
            {LATE}; wrote default_c=1; bound; claim c selected=n1; bound; claim c v selected=n1; bound;
            volume v host=n1 taken=c; bound n1""",
        "is bound when claim and static volume are bound": f"""
            nodes n1; {STATIC.format(where="")}; wrote v=1; volume v taken=c; bound; claim c v; bound n1""",
        # That volume may be usable elsewhere only.
        "is requeued if the claim got another volume than planned": f"""
            nodes n1 n2; {STATIC.format(where="host=n1")}; wrote; volume v host=n1 taken=c; volume w host=n2 taken=c;
            claim c w; told binding volumes: PVC "c" is bound to pv "w", not to "v"; time 10; chosen n2""",
        # Nothing of claim or volume changes; the pod would never get its disk there.
        "waits no longer for a node whose labels exclude the volume": f"""
            nodes n1 disk=x; {STATIC.format(where="disk=x")}; wrote; volume v disk=x taken=c; nodes n1 disk=x a=b;
            bound; nodes n1 disk=y; told binding volumes: {MISPLACED}""",
        # A late watch shows the claim without its node: that is not the provisioner's refusal.
        "ignores an old version of the claim": f"{LATE}; wrote default_c=5; claim c; bound",
        "holds nothing after a write that is refused": f"{LATE}; refused; free; time 10; planned n1",
        # No other pod gets the resources, nor the volume that the API does not show as taken yet.
        "has its node and volume reserved": """
            nodes n1; static; volume v; claim c; claim d; pod c cpu=5; planned n1; pod d;
            told 0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind.; pod cpu=5;
            told 0/1 nodes are available: 1 Insufficient cpu.""",
        # Before the API shows that choice; both are bound when the volume is made.
        "goes to the node that was chosen for its claim with another pod": """
            nodes n1 n2; claim c; pod c; pod c; planned n1 2; wrote; claim c v selected=n1; volume v; bound n1 n1""",
        # So that the loop wakes up for it; what is touched is due at once.
        "is due at its deadline": f"{LATE}; due {PATIENCE_S}; wrote default_c=1; due 0; bound; due {PATIENCE_S}",
    }
)
def test_a_pod_that_waits(story: VolumeStory, text: str) -> None:
    story.play(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("claim c selected=n1; bound; claim c", 'provisioning failed for PVC "c"'),
        ("gone c", f'{CHECK} "c" not found'),
        ("claim c selected=n1 going=1", f'{CHECK} "c" is being deleted'),
        ("claim c uid=another", f'{CHECK} "c" not found'),
        ("unlisted", f'{CHECK} "c" not found'),
        ("lose n1", 'failed to get node "n1": node "n1" not found'),
        ("volume v host=n2; claim c v selected=n1", MISPLACED),
        (f"time {PATIENCE_S}", "context deadline exceeded"),
    ],
)
def test_a_plan_that_cannot_be_fulfilled_ends_the_reservation(story: VolumeStory, text: str, why: str) -> None:
    """The pod gets kube-scheduler's message, is tried again after its backoff, and holds nothing until then."""
    story.play(f"{LATE}; wrote default_c=1; {text}")
    (report,) = story.machine.tick(story.store.now)
    assert isinstance(report, Report)
    assert report.message == f"binding volumes: {why}"
    story.play("free")
    assert story.machine.pending_pods.depths()["backoff"] == 1
    story.store.now += 10.0
    assert story.store.run() or story.machine.pending_pods.depths()["unschedulable"] == 1


def test_an_answer_to_an_earlier_decision_does_not_count_for_a_later_one(story: VolumeStory) -> None:
    story.play(f"{LATE}; gone c")
    (first,) = story.orders
    story.store.prepared(first, "not found")
    story.store.run()
    story.play("claim c; time 10; planned n1")
    story.store.prepared(first, "late")
    story.store.prepared(first)
    story.play("claim c v selected=n1; volume v; bound; wrote; bound n1")


@pytest.mark.parametrize("ending", ["removed", "deleting", "ended", "unreadable", "bound elsewhere", "not listed"])
def test_a_pod_that_ends_while_it_waits_leaves_nothing_behind(ending: str, story: VolumeStory) -> None:
    """Resources and assumed volumes are free again, and no pod is bound later."""
    story.play(f"{LATE}; nodes n2; wrote")
    pod = story.orders[0].decision.pod_info.pod
    identity = Identity(pod.metadata.name, "default", pod.metadata.uid)
    if ending == "removed":
        story.machine.pods(Removed(identity), 0.0)
    elif ending == "unreadable":
        story.machine.pods(Unreadable(identity, "x"), 0.0)
    elif ending == "not listed":
        story.machine.handle(Pod, Synced(()), 0.0)
    else:
        pod.metadata.deletion_timestamp = "2026-01-01T00:00:00Z" if ending == "deleting" else None
        pod.status.phase = "Failed" if ending == "ended" else "Pending"
        pod.spec.node_name = "n2" if ending == "bound elsewhere" else ""
        story.store.show(pod)
    story.play("claim c v selected=n1; volume v; bound")
    assigned = story.machine.cache.assigned(pod.metadata.uid)
    assert (assigned.node if assigned is not None else "") == ("n2" if ending == "bound elsewhere" else "")
    assert story.machine.next_due() is None


def test_a_pod_without_volumes_of_its_own_has_none_to_wait_for(store: Store) -> None:
    """Volumes that bind to no place (a token, a config map) are none of these."""
    store.nodes("n1")
    store.pod(spec={"volumes": [{"name": "t", "projected": {}}, {"name": "e", "emptyDir": {}}]})
    (bind,) = store.run()
    assert isinstance(bind, Bind)
    assert not bind.pod_info.volumes
