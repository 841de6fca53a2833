"""Decisions one after the other: what is kept of the nodes follows them, and plugins about other pods come on top."""

from collections import Counter

import pytest

from scheduler.kube.objects import Image
from tests.scheduler.conftest import Json
from tests.scheduler.group_life import Life, apart, told
from tests.scheduler.reference.messages import refusal

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ON_DISKS = {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}


def _place(life: Life, spec: Json, app: str = "") -> str:
    """Let a pod come; return the node where it is bound."""
    (pod,) = life.place(life.make_pod(spec=spec, metadata={"labels": {"app": app}}))
    return pod.spec.node_name or ""


@pytest.mark.parametrize(
    ("spec", "fields", "images"),
    [
        ({"containers": [{"name": "c", "image": "i"}]}, {}, [Image(["i:latest"], 10**10)]),
        ({"affinity": {"nodeAffinity": {PREFERRED: [ON_DISKS]}}}, {"labels": {"disk": ""}}, []),
    ],
)
def test_a_score_plugin_without_effect_counts_once_it_has_one(
    spec: Json, fields: Json, images: list[Image], life: Life
) -> None:
    """An image or a label that is new on one node of many draws the next pod of a known shape there."""
    life.see(*(life.make_node(f"n{number}") for number in range(10)))
    _place(life, spec)
    node = life.make_node("n7", **fields)
    node.status.images = images
    life.see(node)
    assert _place(life, spec) == "n7"


def test_a_new_prefer_no_schedule_taint_counts_for_pods_of_a_known_shape(life: Life) -> None:
    """No node had such a taint when the nodes were first judged."""
    life.see(*(life.make_node(f"n{number}") for number in range(10)))
    _place(life, {})
    for number in range(9):
        life.see(life.make_node(f"n{number}", spec={"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}))
        assert _place(life, {}) not in {f"n{other}" for other in range(number + 1)}


def test_replicas_spread_and_keep_apart_until_no_node_is_left(life: Life) -> None:
    """Each decision counts the ones before; at the end both plugins give their reasons, in kube-scheduler's words."""
    zones = {"n0": "a", "n1": "a", "n2": "a", "n3": "b", "n4": "b"}
    life.see(*(life.make_node(name, labels={"zone": zone, "host": name}) for name, zone in zones.items()))
    selector = {"matchLabels": {"app": "x"}}
    constraint = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    spec = {"topologySpreadConstraints": [constraint]} | apart("host", app="x")
    nodes = [_place(life, spec, "x") for _ in range(5)]
    assert len(set(nodes)) == 5
    for count in range(1, 6):
        per_zone = Counter(zones[name] for name in nodes[:count])
        assert abs(per_zone["a"] - per_zone["b"]) <= 1
    life.see(life.make_pod("last", spec=spec, metadata={"labels": {"app": "x"}}))
    assert refusal(told(life.work())["last"]) == (
        "0/5 nodes are available: 2 node(s) didn't match pod anti-affinity rules, "
        "3 node(s) didn't match pod topology spread constraints."
    )
    # Another pod is assigned: that may help, and it is decided about the last one again.
    life.work(15.0)
    assert life.machine.step(life.now) is None
    life.see(life.make_pod("other", node="n3", metadata={"labels": {"app": "x"}}))
    life.now += 15.0
    assert life.machine.step(life.now) is not None
