"""What is kept from pod to pod: judgements by row, against new ones and against plain arithmetic."""

import itertools
from collections import Counter
from collections.abc import Mapping
from random import Random
from statistics import pstdev
from typing import Any

import numpy as np
import pytest

from mooring import names
from mooring.annotations.assignment import dump_assignment, read_assignment
from mooring.annotations.pf_terms import Allow
from mooring.indexes import Indexes
from scheduler.cache.column import Journal
from scheduler.cycle.placement_budget import PlacementBudget
from scheduler.cycle.signature_scores import SignatureScores
from scheduler.kube.objects import Image, Node, Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.placement.assign import OUT_OF_BUDGET, Placement
from scheduler.placement.steps import Steps
from tests.scheduler.conftest import Json
from tests.scheduler.group_life import Life, binds

CPUS, GIB = ("0", "500m", "2", "6"), 1 << 30


def _node(random: Random, number: int, life: Life) -> Node:
    taint = {"key": "k", "value": "v"}
    taints: tuple[list[Json], ...] = ([], [taint | {"effect": "NoSchedule"}], [taint | {"effect": "PreferNoSchedule"}])
    fields: Json = {
        "labels": {"zone": random.choice("ab"), "kubernetes.io/hostname": f"n{number}"},
        "allocatable": {"cpu": random.choice(CPUS), "memory": f"{random.randrange(5)}Gi", "pods": "20"},
        "spec": {"unschedulable": random.random() < 0.1, "taints": random.choice(taints)},
    }
    pfs = tuple(life.make_pf(index, random.randrange(6)) for index in range(random.randrange(3)))
    return life.make_node(f"n{number}", pfs, **fields)


def _pod(random: Random, life: Life) -> Pod:
    rate = random.choice((0, 0, 20_000, 60_000))
    request = [{"min_tx_rate": rate}] * random.randrange(4)
    requests = {"cpu": random.choice(CPUS), "memory": f"{random.randrange(3)}Gi"}
    preferred = {"weight": 5, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}
    spec: Json = {
        "containers": [{"name": "c", "resources": {"requests": requests}}],
        "tolerations": random.choice(([], [{"operator": "Exists"}])),
        "affinity": random.choice((None, affinity)),
        "nodeSelector": random.choice((None, None, {"zone": "b"})),
    }
    return life.make_pod(request=request or None, spec=spec)


def _show_with_image(life: Life, number: int, mib: int, **fields: Any) -> None:
    node = life.make_node(f"n{number}", **fields)
    node.status.images = [Image(["i:1"], mib << 20)]
    life.see(node)


def test_excluded_nodes_count_in_the_scores_of_the_others(life: Life) -> None:
    """An image scores higher the more nodes have it: also nodes that the pod cannot go to."""
    pod_info = _pod_info(life.make_pod(spec={"containers": [{"name": "c", "image": "i:1"}]}))
    for number in range(12):
        _show_with_image(life, number, 100 if number < 2 else 0)
    kept = SignatureScores(pod_info, life.machine.cache.nodes, Steps())
    for number in range(12, 15):
        _show_with_image(life, number, 100, spec={"unschedulable": True})
    kept.refresh(Steps())
    _check(kept, pod_info, life)


def test_nodes_are_scored_once_a_pod_passes_on_one(life: Life) -> None:
    """Pods that all differ and pass nowhere would cost twice as much; once one passes, its score is the whole."""
    spec = {"containers": [{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "4"}}}]}
    pod_info = _pod_info(life.make_pod(spec=spec))

    def show(number: int, cpu: str) -> None:
        _show_with_image(life, number, number % 2 * 500, allocatable={"cpu": cpu})

    for number in range(6):
        show(number, "2")
    kept = SignatureScores(pod_info, life.machine.cache.nodes, Steps())
    assert (kept._fact_parts, len(kept.passing_rows())) == (None, 0)
    show(2, "3")
    kept.refresh(Steps())
    assert kept._fact_parts is None
    for number in (4, 5):
        show(number, "8")
        kept.refresh(Steps())
    row, _ = kept.best(PlacementBudget()) or (-1, None)
    assert life.machine.cache.nodes.names[row] == "n5"
    assert kept.parts(row)["ImageLocality"] > 0
    _check(kept, pod_info, life)


def _pod_info(pod: Pod) -> PodInfo:
    pod_info = read_pod_info(pod)
    assert isinstance(pod_info, PodInfo)
    return pod_info


def _results(signature_scores: SignatureScores) -> tuple[Json, Json]:
    """Return refusals by row, and the scores of the rows that pass."""
    for row in signature_scores.passing_rows():
        signature_scores.exact(int(row), PlacementBudget())
    refusals = {row: (rule.name, texts) for rule, texts, rows in signature_scores.refusals() for row in rows}
    passing = signature_scores.passing_rows()
    return refusals, dict(zip(passing, signature_scores.scores(passing), strict=True))


def _check(kept: SignatureScores, pod_info: PodInfo, life: Life) -> None:
    """Check that what is kept equals what is judged now."""
    fresh = SignatureScores(pod_info, life.machine.cache.nodes, Steps())
    assert _results(kept) == _results(fresh)
    assert kept.best(PlacementBudget()) == fresh.best(PlacementBudget())


@pytest.mark.parametrize("seed", range(20))
def test_kept_scores_equal_new_ones(seed: int, life: Life) -> None:
    """Nodes come, change and go, pods are placed and leave: rows that were not judged again did not need it."""
    random = Random(seed)
    shapes = [_pod_info(_pod(random, life)) for _ in range(4)]
    kept = [SignatureScores(pod_info, life.machine.cache.nodes, Steps()) for pod_info in shapes]
    assigned: list[Pod] = []
    for now in range(150):
        act, life.now = random.random(), float(now)
        if act < 0.3:
            life.see(_node(random, random.randrange(40), life))
        elif act < 0.35:
            life.remove_node(f"n{random.randrange(40)}")
        elif act < 0.8 or not assigned:
            life.see(_pod(random, life))
            assigned += life.bound(*binds(life.machine.step(life.now) or []))
        else:
            life.gone(assigned.pop(random.randrange(len(assigned))))
        which = random.randrange(4)
        kept[which].refresh(Steps())
        _check(kept[which], shapes[which], life)


@pytest.mark.parametrize("seed", range(20))
def test_scores_are_what_plain_arithmetic_gives(seed: int, life: Life) -> None:
    """LeastAllocated and BalancedAllocation, a node at a time."""
    random = Random(seed)
    nodes = {f"n{number}": _node(random, number, life) for number in range(12)}
    requests = {"requests": {"cpu": "500m", "memory": "512Mi"}}
    spec = {"containers": [{"name": "c", "resources": requests}]}
    assigned = Counter(random.choice(list(nodes)) for _ in range(10))
    life.see(*nodes.values(), *(life.make_pod(node=name, spec=spec) for name in assigned.elements()))
    pod_info = _pod_info(_pod(random, life))
    signature_scores = SignatureScores(pod_info, life.machine.cache.nodes, Steps())
    for row in signature_scores.passing_rows():
        name, parts = life.machine.cache.nodes.names[row], signature_scores.parts(row)
        pairs = _capacity_and_demand(nodes[name], assigned[name], pod_info.scored)
        least = [max(have - demand, 0) * 100 // have for have, demand in pairs]
        assert parts["NodeResourcesFit"] == (sum(least) // len(least) if least else 0)
        if pod_info.resources.get("cpu") or pod_info.resources.get("memory"):
            pairs = _capacity_and_demand(nodes[name], assigned[name], pod_info.resources)
            shares = [min(demand / have, 1.0) for have, demand in pairs]
            balanced = int((1 - pstdev(shares)) * 100 + 1e-9) if shares else 100
            assert parts["NodeResourcesBalancedAllocation"] == balanced


def _capacity_and_demand(node: Node, assigned: int, requests: Mapping[str, int]) -> list[tuple[int, int]]:
    """Return a node's cpu and memory, if it has any, and what its pods and one with these requests need of it."""
    cpu, memory = (str((node.status.allocatable or {})[name]) for name in ("cpu", "memory"))
    cpus = int(cpu[:-1]) if cpu.endswith("m") else int(cpu) * 1000
    pairs = [
        (cpus, requests.get("cpu", 0) + 500 * assigned),
        (int(memory.removesuffix("Gi")) * GIB, requests.get("memory", 0) + (GIB >> 1) * assigned),
    ]
    return [(capacity, demand) for capacity, demand in pairs if capacity]


def test_a_journal_names_each_changed_row_once_however_late_it_is_read() -> None:
    """It keeps the last change of each row, so that it needs no end."""
    journal = Journal()
    for row in range(300_000):
        journal.note(row % 7)
    assert sorted(journal.since(0)) == [0, 1, 2, 3, 4, 5, 6]
    assert journal.since(journal.end) == []
    end = journal.end
    for row in (3, 5, 3):
        journal.note(row)
    assert journal.since(end) == [3, 5]
    assert journal.since(journal.end - 1) == [3]


def test_two_inventories_of_one_kind_are_judged_once(life: Life) -> None:
    """Nodes of one model share one value of their PFs: a plugin judges it once, however many they are."""
    for number in range(20):
        life.show_node(f"n{number}", life.make_pf(), life.make_pf(1))
    calls = itertools.count()
    life.machine.cache.nodes.models.spread(lambda _: next(calls), np.arange(20))
    assert next(calls) == 1


def test_a_search_that_runs_out_of_steps_is_counted_though_another_node_wins(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best node fails for want of steps, the next one takes the pod, and the counter shows it."""
    outcomes = iter([Refused(OUT_OF_BUDGET), Placement((0,))])
    monkeypatch.setattr("scheduler.plugins.device_rules.rdma_vfs.place_request", lambda *_, **__: next(outcomes))
    life.nodes("n1", "n2")
    (decision,) = binds(life.see(life.make_pod(request=[{}])) + life.decide_ready())
    assert (decision.assigned.node, life.machine.budget_spent) == ("n2", 1)


def test_an_assignment_is_written_as_the_contract_writes_it(life: Life) -> None:
    """Equal assignments are equal strings: byte by byte what `dump_assignment` writes."""
    pf = life.make_pf(name="pf-0", allow=Allow(vlan=Indexes.of((7,)), mac=True, trust=True))
    wish = {"min_tx_rate": 5, "max_tx_rate": 9, "vlan": 7, "mac": "02:00:00:00:00:01", "trust": True, "name": "rdma0"}
    life.show_node("n1", pf)
    (decision,) = binds(life.see(life.make_pod(request=[wish, {"containers": ["c"]}])) + life.decide_ready())
    text = decision.annotations[names.ASSIGNMENT]
    assert text == dump_assignment(read_assignment(text))
