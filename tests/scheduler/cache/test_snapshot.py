"""A snapshot is the cluster of one moment with what was put there since, whatever becomes of the live cache."""

import weakref
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any

import pytest

from mooring.annotations.assignment import AssignedVf, Assignment
from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.node_info import NodeInfo, read_node
from scheduler.cache.pod_counts import Question
from scheduler.cache.row_counts import Counts
from scheduler.kube.host_ports import NO_PORTS
from scheduler.kube.selection.affinity import AffinityInfo, Scope, Term
from scheduler.kube.selection.selectors import select_labels
from scheduler.kube.storage_objects import ClaimUse
from tests.scheduler.group_life import Life

APPS = "abc"
KEYS = "zone", "host"
SEEDS = range(24)


@dataclass
class Cluster:
    """What a cache was given: enough to build it again."""

    nodes: dict[str, NodeInfo] = field(default_factory=dict)
    pods: dict[str, AssignedPod] = field(default_factory=dict)

    def copy(self) -> "Cluster":
        return Cluster(dict(self.nodes), dict(self.pods))

    def rebuilt(self) -> Cache:
        cache = Cache()
        for node in self.nodes.values():
            cache.put_node(node)
        for pod in self.pods.values():
            cache.put(pod, 0.0)
        return cache


class Events:
    """Random events of nodes and pods from a seed."""

    def __init__(self, seed: int, life: Life) -> None:
        self.random, self._life, self._number = Random(seed), life, 0

    def node(self, name: str) -> NodeInfo:
        pfs = tuple(
            self._life.make_pf(index, vfs=self.random.choice((2, 4))) for index in range(self.random.randrange(3))
        )
        labels = {"zone": self.random.choice("xy"), "host": name}
        allocatable: dict[str, Any] = {"cpu": str(self.random.randint(4, 8)), "example.com/gpu": "8"}
        return read_node(self._life.make_node(name, pfs, labels=labels, allocatable=allocatable), None, 0.0)[0]

    def pod(self, node: str, cluster: Cluster) -> AssignedPod:
        self._number += 1
        uid, app = f"u{self._number}", self.random.choice(APPS)
        term = Term(self.random.choice(KEYS), Scope(select_labels({"app": self.random.choice(APPS)}), frozenset("n")))
        kind = self.random.choice(("required_anti_affinity", "required_affinity", "", ""))
        own: dict[str, Any] = {kind: (term,)} if kind else {"preferences": ((term, 5),)}
        known, assignment = cluster.nodes.get(node), None
        inventory = known.inventory if known is not None else None
        if inventory is not None and inventory.pfs:
            # Now and then one that another pod has.
            pf = self.random.choice(inventory.pfs)
            vf = self.random.choice(list(pf.vfs))
            assignment = Assignment(uid, node, (AssignedVf(pf.name, vf, pf.vf_pci(vf), "ethernet", "rail0"),))
        return AssignedPod(
            uid,
            f"n/{uid}",
            node,
            {"cpu": self.random.choice((100, 500)), "example.com/gpu": self.random.randrange(2)},
            ports=frozenset({("TCP", "", b"1")}) if self.random.random() < 0.3 else NO_PORTS,
            assignment=assignment,
            affinity_info=AffinityInfo("n", (("app", app),), **own),
            volumes=(ClaimUse(f"n/{app}"),) if self.random.random() < 0.3 else (),
        )

    def change(self, cache: Cache, cluster: Cluster, *, with_nodes: bool = True) -> None:
        """Let something happen; ``cluster`` keeps what the cache was given."""
        what, name = self.random.random(), f"n{self.random.randrange(6)}"
        if with_nodes and (what < 0.15 or not cluster.nodes):
            cluster.nodes[name] = self.node(name)
            cache.put_node(cluster.nodes[name])
        elif with_nodes and what < 0.25:
            cluster.nodes.pop(name, None)
            cache.remove_node(name)
        elif what < 0.55 and cluster.pods:
            pod = cluster.pods.pop(self.random.choice(sorted(cluster.pods)))
            cache.remove(pod.uid, 1.0)
        else:
            pod = self.pod(name, cluster)
            cluster.pods[pod.uid] = pod
            cache.put(pod, 0.0)


QUESTIONS = [
    Question((Scope(select_labels({"app": app}), frozenset("n")),), living_only=living)
    for app in APPS
    for living in (False, True)
]


def answers(cache: Cache) -> dict[str, object]:
    """Return what a cache's pod counts say of each node."""
    nodes, pod_counts = cache.nodes, cache.pod_counts

    def by_name(counts: Counts) -> dict[str, int]:
        return {name: int(counts[row]) for name, row in nodes.row_of.items() if counts[row]}

    found: dict[str, object] = {str(one): by_name(pod_counts.counts(one, nodes.size)) for one in QUESTIONS}
    for kind, terms in pod_counts.terms.items():
        for app in APPS:
            about = terms.about(AffinityInfo("n", (("app", app),)), {})
            on = {term: by_name(row_counts.array(nodes.size)) for term, row_counts in about.items()}
            found[f"{kind} {app}"] = {term: counts for term, counts in on.items() if counts}
    return found


def facts(cache: Cache) -> dict[str, object]:
    """Return what a cache says of each node, and of all."""
    nodes, found = cache.nodes, dict[str, object]()
    gpus = nodes.scalar("example.com/gpu")
    for name, row in nodes.row_of.items():
        view = nodes.row_view(row)
        found[name] = (
            nodes.facts[row],
            nodes.used_of(row),
            nodes.free_vfs_of_row[row],
            nodes.ports[row],
            nodes.models[row],
            [nodes.label(key)[row] for key in KEYS],
            (view.allocatable, view.free),
            int(gpus.free[row]) if gpus is not None else 0,
            {one.uid for one in cache.assigned_pods_on(name)},
            cache.vf_accounting(name).free_vfs,
        )
    return found | answers(cache) | {"usage": asdict(cache.volumes.usage)}


def _begin(seed: int, life: Life) -> tuple[Events, Cache, Cluster]:
    events, live, cluster = Events(seed, life), Cache(), Cluster()
    for _ in range(40):
        events.change(live, cluster)
    return events, live, cluster


@pytest.mark.parametrize("seed", SEEDS)
def test_a_snapshot_equals_a_cache_built_of_what_there_was(seed: int, life: Life) -> None:
    """With the pods that were put there, beside events in the live cache; and the live cache has nothing of them."""
    events, live, cluster = _begin(seed, life)
    before, own = cluster.copy(), Cluster()
    snapshot = live.snapshot(has_volumes=True)
    if events.random.random() < 0.5:
        facts(snapshot)
    own.nodes = before.nodes
    for _ in range(60):
        if events.random.random() < 0.5:
            events.change(live, cluster)
        else:
            events.change(snapshot, own, with_nodes=False)
        if events.random.random() < 0.1:
            facts(live)
    expected = Cluster(before.nodes, before.pods | own.pods)
    assert facts(snapshot) == facts(expected.rebuilt())
    assert facts(live) == facts(cluster.rebuilt())
    live.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_pods_of_a_snapshot_are_assumed_together_as_if_one_by_one(seed: int, life: Life) -> None:
    """Other nodes may have changed since, and pods of these may be shown with other labels."""
    events, live, cluster = _begin(seed, life)
    snapshot, own = live.snapshot(has_volumes=True), Cluster(dict(cluster.nodes))
    pods = [events.pod(events.random.choice(sorted(own.nodes)), own) for _ in range(events.random.randrange(1, 8))]
    for pod in pods:
        snapshot.assume(pod, 0.0)
    if events.random.random() < 0.5:
        facts(live)
    for _ in range(5):
        events.change(live, cluster)
    for shown in list(cluster.pods.values())[:3]:
        cluster.pods[shown.uid] = replace(shown, affinity_info=AffinityInfo("n", (("app", "a"),)))
        live.put(cluster.pods[shown.uid], 0.0)
    changed = set(live.nodes.changes.since(snapshot.nodes.changes.end - len(pods)))
    kept = [one for one in pods if snapshot.nodes.row_of[one.node] not in changed]
    # Those on changed nodes are not carried out, so none of a node is.
    live.assume_all(snapshot, kept)
    cluster.pods |= {one.uid: one for one in kept}
    assert facts(live) == facts(cluster.rebuilt())
    live.check()


def test_a_snapshot_whose_pods_were_assumed_is_freed_later(life: Life) -> None:
    """Not in the same step, which it would make half as long again."""
    live = Cluster({"n0": Events(0, life).node("n0")}).rebuilt()
    snapshot = live.snapshot(has_volumes=False)
    live.assume_all(snapshot, [])
    reference = weakref.ref(snapshot)
    del snapshot
    assert reference() is not None
    live.tick(0.0)
    assert reference() is None


def test_a_snapshot_of_a_snapshot_is_private_too(life: Life) -> None:
    """What is retracted leaves nothing behind, since when its VFs are free included."""
    events, live, cluster = _begin(1, life)
    snapshot, own = live.snapshot(has_volumes=True), Cluster(dict(cluster.nodes))
    for _ in range(10):
        events.change(snapshot, own, with_nodes=False)
    second, before = snapshot.snapshot(has_volumes=True), facts(snapshot)
    pods = [events.pod(node, own) for node in own.nodes]
    for pod in pods:
        second.assume(pod, 0.0)
    assert facts(second) != before
    assert facts(snapshot) == before
    for pod in pods:
        second.take_off(pod)
    assert facts(second) == before


@pytest.mark.parametrize("seed", SEEDS)
def test_a_snapshot_knows_whether_what_was_asked_there_has_another_answer(seed: int, life: Life) -> None:
    """It may say so once too often, never once too seldom."""
    events, live, cluster = _begin(seed, life)
    snapshot = live.snapshot(has_volumes=False)
    before = answers(snapshot)
    for _ in range(events.random.randrange(3)):
        events.change(live, cluster, with_nodes=False)
    if answers(live) != before:
        assert snapshot.pod_counts.is_outdated


def test_a_snapshot_that_has_dropped_answers_counts_as_outdated(life: Life) -> None:
    """Members with a label of their own each, as an indexed Job's, are more than it keeps answers about."""
    live = Cluster({"n0": Events(0, life).node("n0")}).rebuilt()
    snapshot = live.snapshot(has_volumes=False)
    term = Term("host", Scope(select_labels({"index": "0"}), frozenset("n")))
    anti_affinity = AffinityInfo("n", required_anti_affinity=(term,))
    live.put(AssignedPod("first", "n/first", "n0", affinity_info=anti_affinity), 0.0)
    for number in range(100):
        snapshot.pod_counts.terms["anti_affinity"].about(AffinityInfo("n", (("index", str(number)),)), {})
    assert snapshot.pod_counts.is_outdated
