"""The plugins about other pods and image locality against a plain reference, on thousands of small random clusters."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from scheduler.plugins import image_locality, inter_pod_affinity, pod_topology_spread
from tests.scheduler.reference import plugins as rules
from tests.scheduler.reference.cluster import Cluster, pod_info_of, refusals, scores
from tests.scheduler.reference.world import Json, World, random_node, random_pod, random_world

Refused = Callable[[World, Json, Json], str]
Scores = Callable[[World, Json, Sequence[Json]], list[int]]


def compare(cluster: Cluster, pod: Json, candidates: Sequence[Json]) -> None:
    """Compare each plugin with the reference: its refusals on all nodes, its scores on some."""
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

    Pods and nodes come and go, rows are used again, namespaces are relabelled: nothing that is kept goes stale.
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
    if act < 0.5:
        cluster.assigned(random_pod(random), random.choice(world.nodes))
    elif act < 0.75 and world.pods:
        cluster.unassign(random.choice(world.pods))
    elif act < 0.85:
        cluster.add(random_node(random, number))
    elif act < 0.93 and len(world.nodes) > 1:
        cluster.remove(random.choice(world.nodes))
    else:
        name, labels = random.choice("abc"), random.choice([{}, {"team": "x"}, {"team": "y"}])
        world.namespaces[name] = labels
        cluster.pod_counts.put_namespace(name, labels)
