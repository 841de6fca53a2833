"""PodTopologySpread, InterPodAffinity and ImageLocality on the cases that kube-scheduler's users know.

And against a plain reference, on thousands of small random clusters: that holds all scores, and each rule beyond the
first examples here.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from scheduler.plugins import image_locality, inter_pod_affinity, pod_topology_spread
from tests.scheduler.reference import plugins as rules
from tests.scheduler.reference.cluster import Cluster, pod_info_of, refusals, scores
from tests.scheduler.reference.world import REQUIRED, Json, World, random_node, random_pod, random_world

HOST = "kubernetes.io/hostname"
FOO = {"matchExpressions": [{"key": "foo", "operator": "Exists"}]}
NO_FOO = {"matchExpressions": [{"key": "foo", "operator": "DoesNotExist"}]}
TEAM = {"matchLabels": {"team": "1"}}
NAMESPACES = {"default": {}, "n1": {"team": "1"}, "n2": {"team": "2"}}
# Two zones of two nodes.
FOUR = "a1 b1 x2 y2"
# A verdict is a letter for each node.
LETTERS = {
    "": ".",
    "node(s) didn't match pod topology spread constraints": "s",
    "node(s) didn't match pod topology spread constraints (missing required label)": "m",
    "node(s) didn't match pod affinity rules": "f",
    "node(s) didn't match pod anti-affinity rules": "n",
    "node(s) didn't satisfy existing pods anti-affinity rules": "e",
}


def nodes(text: str) -> list[Json]:
    """Make nodes: "a1" is a in zone 1, "b" has no zone label, "d!" is d with a taint, "r@" is r in rack 1."""
    return [_node(word[0], word[1:]) for word in text.split()]


def _node(name: str, marks: str) -> Json:
    labels = {"node": name, HOST: name}
    meanings = {"1": ("zone", "1"), "2": ("zone", "2"), "@": ("rack", "1")}
    labels |= dict(meanings[mark] for mark in marks if mark in meanings)
    taints = [{"key": "k", "effect": "NoSchedule"}] if "!" in marks else []
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}


def pod(on: str | None = None, labels: Json | None = None, namespace: str = "default", **spec: Any) -> Json:
    metadata: Json = {"name": "p", "namespace": namespace, "uid": "u"}
    metadata["labels"] = {"foo": ""} if labels is None else labels
    return {"metadata": metadata, "spec": {"containers": [{"name": "c"}], "nodeName": on} | spec}


def crowd(homes: str) -> list[Json]:
    """Make a foo on each of these nodes: "aabyyy" is two on a, one on b and three on y."""
    return [pod(home) for home in homes]


def ending(home: str) -> Json:
    assigned = pod(home)
    assigned["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return assigned


def revisions(text: str) -> list[Json]:
    """Make a pod of revision 1 or 2 on each node: "a1 x2"."""
    return [pod(word[0], {"foo": "", "rev": word[1]}) for word in text.split()]


def spread(key: str, skew: int = 1, when: str = "DoNotSchedule", **fields: Any) -> Json:
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when, "labelSelector": FOO} | fields


def term(key: str = "zone", selector: Json | None = FOO, **fields: Any) -> Json:
    return {"topologyKey": key, "labelSelector": selector} | fields


def near(*terms: Json) -> Json:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def apart(*terms: Json) -> Json:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def verdicts(rule: Any, on: str, assigned: Sequence[Json], incoming: Json) -> str:
    cluster = Cluster(World(nodes(on), list(assigned), dict(NAMESPACES)))
    return "".join(LETTERS[text] for text in refusals(rule, cluster, incoming))


@pytest.mark.parametrize(
    ("homes", "constraints", "labels", "expected"),
    [
        ("", [spread("zone")], None, "...."),
        ("aab", [spread("zone")], {}, "ss.."),
        ("aaby", [spread("zone")], None, "ss.."),
        ("a", [spread("rack")], None, "mmmm"),
        ("aabyyy", [spread("node")], None, "ss.s"),
        ("aabyyy", [spread("node", 2)], None, "s..s"),
        ("aabyyy", [spread("zone"), spread("node")], None, "ss.s"),
        ("aabxyyy", [spread("zone"), spread("rack")], None, "mmmm"),
        ("aabbxyy", [spread("node", 2, minDomains=4)], None, "...."),
        ("aax", [spread("zone", 2, minDomains=3)], None, "ss.."),
        ("aabbbb", [spread("zone", when="ScheduleAnyway")], None, "...."),
    ],
)
def test_a_hard_constraint_keeps_the_skew(
    homes: str, constraints: list[Json], labels: Json | None, expected: str
) -> None:
    """The matching pods of a domain, the pod itself if it matches, and the emptiest domain decide."""
    incoming = pod(labels=labels, topologySpreadConstraints=constraints)
    assert verdicts(pod_topology_spread, FOUR, crowd(homes), incoming) == expected


MERGED = {"matchExpressions": [*FOO["matchExpressions"], {"key": "rev", "operator": "In", "values": ["1"]}]}


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        (spread("node", matchLabelKeys=["rev", "absent"]), ".s"),
        # A selector that the API server has merged stays as it is.
        (spread("node", labelSelector=MERGED, matchLabelKeys=["rev"]), "s."),
    ],
)
def test_pods_of_another_revision_do_not_count_for_spreading(constraint: Json, expected: str) -> None:
    incoming = pod(labels={"foo": "", "rev": "2"}, topologySpreadConstraints=[constraint])
    assert verdicts(pod_topology_spread, "a b", revisions("a1 a1 b2"), incoming) == expected


def test_a_tainted_node_counts_for_spreading() -> None:
    incoming = pod(labels={}, topologySpreadConstraints=[spread("node")])
    assert verdicts(pod_topology_spread, "a b! y", crowd("aayyy"), incoming) == "s.s"


BAR = term(selector={"matchLabels": {"bar": "1"}})
BOTH = term(namespaces=["n2"], namespaceSelector=TEAM)
OTHERS = {"matchExpressions": [*FOO["matchExpressions"], {"key": "rev", "operator": "NotIn", "values": ["1"]}]}
OWN_REVISION, OTHER_REVISIONS = term(matchLabelKeys=["rev"]), term(mismatchLabelKeys=["rev"])
# A pod that keeps foos off.
HERMIT = pod("a", {}, **apart(term()))


@pytest.mark.parametrize(
    ("assigned", "incoming", "expected"),
    [
        ([pod("a")], pod(labels={}, **near(term())), "..ff"),
        ([pod("a", namespace="n1"), pod("x", namespace="n2")], pod(labels={}, **near(BOTH)), "...."),
        ([], pod(**near(term())), "...."),
        ([], pod(**near(term(), BAR)), "ffff"),
        ([pod("a"), pod("a", {"bar": "1"})], pod(labels={}, **near(term(), BAR)), "ffff"),
        ([pod("a")], pod(labels={}, **apart(term())), "nn.."),
        ([pod("a")], pod(labels={}, **apart(term(selector=None))), "...."),
        # An empty label is one.
        ([pod("a")], pod(labels={}, **apart(term("zone", NO_FOO))), "...."),
        ([ending("a")], pod(labels={}, **apart(term("node"))), "n..."),
        ([HERMIT], pod(), "ee.."),
        ([HERMIT], pod(namespace="n1"), "...."),
        ([pod("x", {}, **apart(term())), pod("a")], pod(**apart(term("node"))), "n.ee"),
        (revisions("a1 x2"), pod(labels={"rev": "2"}, **apart(OWN_REVISION)), "..nn"),
        (revisions("a1 x2"), pod(labels={"rev": "2"}, **apart(OTHER_REVISIONS)), "nn.."),
        # The API server has merged the label keys of these already.
        (revisions("a1 x2"), pod(labels={"rev": "2"}, **apart(term("zone", MERGED, matchLabelKeys=["rev"]))), "nn.."),
        (
            revisions("a1 x2"),
            pod(labels={"rev": "2"}, **apart(term("zone", OTHERS, mismatchLabelKeys=["rev"]))),
            "..nn",
        ),
    ],
)
def test_required_terms_of_both_sides_hold(assigned: list[Json], incoming: Json, expected: str) -> None:
    """The pod's own terms and the assigned pods' anti-affinity; the first pod of a group with affinity may start."""
    assert verdicts(inter_pod_affinity, FOUR, assigned, incoming) == expected


@pytest.mark.parametrize(("homes", "expected"), [("", "f.f"), ("a", "fff"), ("r", "fff")])
def test_the_exception_for_the_first_pod_of_a_group_applies_once(homes: str, expected: str) -> None:
    """One pod of it in the domain of one of two labels is enough, even if no node can satisfy both terms."""
    incoming = pod(**near(term(), term("rack")))
    assert verdicts(inter_pod_affinity, "a1 b2@ r@", crowd(homes), incoming) == expected


@pytest.mark.parametrize(
    ("images", "wanted", "expected"),
    [
        ([{"r/40:latest": 40}, {"r/250:latest": 250}], ["r/40", "r/250"], [0, 5]),
        ([{"r/300:latest": 300}, {"r/250:latest": 250}], ["r/300:latest", "r/250:1"], [6, 0]),
        ([{"r/4000:latest": 4000}, {}], ["r/4000"], [100, 0]),
        ([{"r:80/i:latest": 1000}] * 2, ["r:80/i"], [100, 100]),
    ],
)
def test_nodes_that_have_the_images_are_preferred(
    images: list[dict[str, int]], wanted: list[str], expected: list[int]
) -> None:
    """By size, scaled by the share of nodes that have it: below 23 MiB it is nothing, 1000 MiB a container are all."""
    world = World(nodes("a b"))
    for node, sizes in zip(world.nodes, images, strict=True):
        node["status"] = {"images": [{"names": [name], "sizeBytes": size << 20} for name, size in sizes.items()]}
    cluster = Cluster(world)
    containers = [{"name": f"c{number}", "image": name} for number, name in enumerate(wanted)]
    pod_info = pod_info_of(pod(containers=containers[1:], initContainers=containers[:1]))
    scorer = image_locality.pre_filter(pod_info, cluster.nodes)
    assert scorer is not None
    assert scorer(cluster.rows(world.nodes)).tolist() == expected


Refused = Callable[[World, Json, Json], str]
Scores = Callable[[World, Json, Sequence[Json]], list[int]]


def compare(cluster: Cluster, pod: Json, candidates: Sequence[Json]) -> None:
    world = cluster.world
    cases: tuple[tuple[Any, Refused, Scores], ...] = (
        (inter_pod_affinity, rules.affinity_refusal, rules.affinity_scores),
        (pod_topology_spread, rules.spread_refusal, rules.spread_scores),
    )
    for rule, refusal, score in cases:
        assert refusals(rule, cluster, pod) == [refusal(world, pod, node) for node in world.nodes], rule.FILTER.name
        assert scores(rule, cluster, pod, candidates) == score(world, pod, candidates), rule.FILTER.name
    scorer = image_locality.pre_filter(pod_info_of(pod), cluster.nodes)
    assert scorer is not None
    assert scorer(cluster.rows(candidates)).tolist() == rules.image_scores(world, pod, candidates)


@pytest.mark.parametrize("seed", range(40))
def test_every_answer_equals_that_of_the_reference_while_the_cluster_changes(seed: int) -> None:
    """Refusals with their words, and scores as they are normalised, for 50 clusters.

    Pods and nodes come and go, rows are used again, namespaces and services change: nothing that is kept goes stale.
    """
    random = Random(seed)
    for number in range(50):
        cluster, asking = Cluster(random_world(random)), [random_pod(random) for _ in range(2)]
        for step in range(30 if number == 0 else 2):
            candidates = random.sample(cluster.world.nodes, random.randint(1, len(cluster.world.nodes)))
            compare(cluster, random.choice(asking), candidates)
            _change(random, cluster, 100 + step)
            cluster.check()


def _change(random: Random, cluster: Cluster, number: int) -> None:
    world, act = cluster.world, random.random()
    if act < 0.4:
        cluster.assigned(random_pod(random), random.choice(world.nodes))
    elif act < 0.6 and world.pods:
        cluster.unassign(random.choice(world.pods))
    elif act < 0.7:
        cluster.add(random_node(random, number))
    elif act < 0.75 and len(world.nodes) > 1:
        cluster.remove(random.choice(world.nodes))
    elif act < 0.85 and world.services:
        gone = world.services.pop()["metadata"]
        cluster.pod_counts.default_selectors.remove_service(gone["namespace"], gone["name"])
    else:
        name, labels = random.choice("abc"), random.choice([{}, {"team": "x"}, {"team": "y"}])
        world.namespaces[name] = labels
        cluster.pod_counts.put_namespace(name, labels)
