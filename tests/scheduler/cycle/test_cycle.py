"""Decisions one after the other: what is kept of the nodes follows them, and plugins about other pods come on top."""

from collections import Counter

import pytest

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import read_node
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.decisions import Bind, Unschedulable
from scheduler.cycle.preemption.disruption_budgets import Budgets
from scheduler.cycle.preemption.preemption import Preemption
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.objects import Image, Node
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.pending.reservations import Reservations
from scheduler.queue.queue import Queue
from tests.scheduler.conftest import Json, MakeNode, MakePod
from tests.scheduler.reference.messages import refusal

REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
WISH = {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
LIKE_IT = {"labelSelector": {"matchLabels": {"app": "x"}}}


class Cell:
    """Nodes with pods on them, and the scheduling cycle for the next."""

    def __init__(self, make_pod: MakePod, *nodes: Node) -> None:
        self.cluster, self.make_pod = Cache(), make_pod
        reservations = Reservations(Queue())
        preemption = Preemption(self.cluster, reservations, Budgets())
        self._scheduling_cycle = SchedulingCycle(self.cluster, reservations, preemption)
        for node in nodes:
            self.put(node)

    def put(self, node: Node) -> None:
        self.cluster.put_node(read_node(node, self.cluster.node(node.metadata.name), 0.0)[0])

    def decide(self, spec: Json, labels: Json | None = None) -> Bind | Unschedulable:
        """Decide about a pod, and add it to its node if it is placed."""
        number = sum(1 for _ in self.cluster.assigned_pods())
        metadata = {"name": f"p{number}", "namespace": "default", "uid": f"u{number}", "labels": labels or {}}
        pod_info = read_pod_info(self.make_pod(metadata=metadata, spec=spec))
        assert isinstance(pod_info, PodInfo)
        decision = self._scheduling_cycle.decide(pod_info, 0.0)
        if isinstance(decision, Bind):
            self.cluster.assume(decision.assigned, 0.0)
        self.cluster.check()
        return decision

    def choose(self, spec: Json, labels: Json | None = None) -> str:
        decision = self.decide(spec, labels)
        assert isinstance(decision, Bind)
        return decision.assigned.node


@pytest.mark.parametrize(
    ("spec", "fields", "images"),
    [
        ({"containers": [{"name": "c", "image": "i"}]}, {}, [Image(["i:latest"], 10**10)]),
        ({"affinity": {"nodeAffinity": {PREFERRED: [WISH]}}}, {"labels": {"disk": ""}}, []),
    ],
)
def test_a_score_plugin_without_effect_counts_once_it_has_one(
    spec: Json, fields: Json, images: list[Image], make_node: MakeNode, make_pod: MakePod
) -> None:
    """An image or a label that is new on one node of many draws the next pod of a known shape there."""
    cell = Cell(make_pod, *(make_node(f"n{number}") for number in range(10)))
    cell.choose(spec)
    node = make_node("n7", **fields)
    node.status.images = images
    cell.put(node)
    assert cell.choose(spec) == "n7"


def test_a_new_prefer_no_schedule_taint_counts_for_pods_of_a_known_shape(
    make_node: MakeNode, make_pod: MakePod
) -> None:
    """No node had such a taint when the nodes were first judged."""
    cell = Cell(make_pod, *(make_node(f"n{number}") for number in range(10)))
    cell.choose({})
    for number in range(9):
        cell.put(make_node(f"n{number}", spec={"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}))
        assert cell.choose({}) not in {f"n{other}" for other in range(number + 1)}


def test_replicas_spread_and_keep_apart_until_no_node_is_left(make_node: MakeNode, make_pod: MakePod) -> None:
    """Each decision counts the ones before; at the end both plugins give their reasons, in kube-scheduler's words."""
    zones = {"n0": "a", "n1": "a", "n2": "a", "n3": "b", "n4": "b"}
    nodes = [make_node(name, labels={"zone": zone, "host": name}) for name, zone in zones.items()]
    cell = Cell(make_pod, *nodes)
    constraint = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"} | LIKE_IT
    anti = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "host"} | LIKE_IT]}}
    spec = {"topologySpreadConstraints": [constraint], "affinity": anti}
    chosen = [cell.choose(spec, {"app": "x"}) for _ in range(5)]
    assert len(set(chosen)) == 5
    for count in range(1, 6):
        per_zone = Counter(zones[name] for name in chosen[:count])
        assert abs(per_zone["a"] - per_zone["b"]) <= 1
    last = cell.decide(spec, {"app": "x"})
    assert isinstance(last, Unschedulable)
    assert refusal(last.reason) == (
        "0/5 nodes are available: 2 node(s) didn't match pod anti-affinity rules, "
        "3 node(s) didn't match pod topology spread constraints."
    )
    assert ClusterEvent.POD_ASSIGNED in last.requeue_on


def test_a_required_affinity_follows_the_first_of_its_group(make_node: MakeNode, make_pod: MakePod) -> None:
    """The first goes anywhere; all others to its zone, however full, as does a pod that requires them."""
    cell = Cell(make_pod, *(make_node(f"n{number}", labels={"zone": "ab"[number % 2]}) for number in range(6)))
    group = {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone"} | LIKE_IT]}}}
    chosen = [cell.choose(group, {"app": "x"}) for _ in range(12)]
    assert len({int(name[1:]) % 2 for name in chosen}) == 1
    assert int(cell.choose(group, {"app": "y"})[1:]) % 2 == int(chosen[0][1:]) % 2
