"""Which pods leave for a group: only if all that it needs fits then, and those whose loss is smallest."""

import re
from typing import Any

import pytest

from scheduler.cycle.groups.group_snapshot import Turns
from scheduler.cycle.groups.preemption import preempt, victim_plan
from scheduler.cycle.groups.preemption.victim_plan import PlanSearch, VictimPlan
from tests.scheduler.cycle.groups.preemption.scene import WHOLE, Scene, row
from tests.scheduler.group_life import Life, apart, binds, told, victims

HOST = "kubernetes.io/hostname"
RANK = "batch.kubernetes.io/job-completion-index"
SPREAD_TERM = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
SPREAD = {"topologySpreadConstraints": [SPREAD_TERM]}
RULES = "rules about pods on other nodes"
NOT_ENOUGH = "not enough free RDMA VFs"
NOT_HELPFUL = "preemption: no pods of lower priority were found whose eviction makes room for enough members."


def _slices(size: int) -> dict[str, Any]:
    return {"slices": {"size": size, "within": "rack"}}


WITHIN_RACK = {"within": "rack"}
LOW, LOWER = {"low": WHOLE}, {"low": WHOLE | {"priority": 1}}
BY_NODE = "n1(kept0^2) n2(kept1^1) n3(a^5) n4(b^5)"
GUARDED = "n1(guard:4^5) n2(low0) n3(low1)"
CHOICES = [
    row("free room is taken first", "n1(a) n2(b) n3 > [ab]"),
    row("the most important pod stays", "n1(a^5) n2(b^3) n3(c^1) > b c"),
    row("the pod that has run longest stays", "n1(a~2) n2(b~1) n3(c~0) > a b"),
    row(
        "the domain with the smallest loss is taken",
        "n1(a^5) n2(b^5) n3/r1(c^4) n4/r1(d^4) n5/r2(e^3) n6/r2(f^3) > e f",
        group=WITHIN_RACK,
    ),
    row("a domain with too few nodes is not taken", "n1(a) n2/r1(b^1) n3/r1(c^1) > b c", group=WITHIN_RACK),
    row(
        "nobody leaves if a small slice would take a large one's room",
        "large:6(a:6) small/r1:2 >",
        members="2:1 2:3",
        group=_slices(2),
    ),
    row(
        "members move within a slice's domain for a victim to stay",
        "n1:2(a:1) n2:2(b:1) n3/r1:3(c^20) n4/r1:3(d^20) > [ab]",
        members="3:1",
        group=_slices(3),
    ),
    # Without these the member that waits would not be enough.
    row("members of the group stay", "n1(train0) n2(a^20) >", members="1", group={"min": 2}, groups={"train": 2}),
    # PodGroups among the victims.
    row("a whole group leaves", "n1(low0) n2(low1) > low0 low1", pod_groups=LOW),
    row("a PodGroup's lower priority makes its pods victims", "n1(low0^50) n2(low1^50) > low0 low1", pod_groups=LOWER),
    row("a whole group stays before pods of its priority", "n1(low0) n2(low1) n3(a) n4(b) > a b", pod_groups=LOW),
    row(
        "a group that leaves for one node spares a pod on another",
        "n1:1(low0:1) n2:2(low1:1+a:1) > low0 low1",
        members="2:1",
        pod_groups=LOWER,
    ),
    row(
        "a group stays that no node needs once another one leaves",
        "n0:1(low0:1) n1:3(a:2+b:1^20) n2:5(few0:2+low1:2) n3:1(low2:1) n4:6(c:2+low3:3) > c low0 low1 low2 low3",
        members="4:3",
        group={"min": 3},
        pod_groups={"low": WHOLE, "few": WHOLE},
    ),
    # Groups by annotation among the victims.
    row(
        "pods and members beyond min leave before a full group",
        "n1(g0~9) n2(g1~9) n3(a) n4(s0) n5(s1) n6(s2) > a s[012]",
        groups={"g": 2, "s": 2},
    ),
    row("no more members beyond min leave than there are", "n1(g0) n2(g1) n3(g2) > g0 g1 g2", groups={"g": 2}),
    # Budgets.
    row("more important pods leave before a budget is violated", f"{BY_NODE} > a b", budgets={"kept": 0}),
    row("as many pods leave as a budget allows, the least important", f"{BY_NODE} > [ab] kept1", budgets={"kept": 1}),
    row(
        "members leave room to larger ones before a budget is violated",
        "n1(a) n2:4(b) n3(kept:4) > a b",
        members="1:2 1:4",
        budgets={"kept": 0},
    ),
    row(
        "a member beyond min with a budget leaves with its group",
        "n1(g0) n2(g1) n3(g2) > g0 g1 g2",
        groups={"g": 2},
        budgets={"g0": 1, "g1": 1, "g2": 0},
    ),
    # The guard has anti-affinity, in all of the rack, against members or against other pods.
    row(
        "a pod that keeps members off another node leaves",
        f"{GUARDED} > .*guard.*",
        specs={"guard": apart("rack", app="train")},
    ),
    row(
        "a pod whose anti-affinity selects no member stays",
        f"{GUARDED} > low0 low1",
        specs={"guard": apart("rack", app="no")},
    ),
]


@pytest.mark.parametrize(("scene", "expected"), CHOICES)
def test_the_victims_of_a_group(life: Life, scene: Scene, expected: str) -> None:
    assert re.fullmatch(expected, " ".join(victims(scene.play(life))))


@pytest.mark.parametrize(
    ("scene", "why"),
    [
        row("one member fits without the pod, two never do", f"n1(a) > {NOT_HELPFUL}"),
        row("pods of the same priority stay", f"n1(a^10) n2(b^10) > {NOT_ENOUGH}"),
        row("the group never preempts", "n1(a) n2(b) > preemptionPolicy=Never", spec={"preemptionPolicy": "Never"}),
        row("members have rules about other nodes", f"n1(a) n2(b) > {RULES}", spec=SPREAD),
    ],
)
def test_why_nobody_leaves_for_a_group(life: Life, scene: Scene, why: str) -> None:
    instructions = scene.play(life)
    assert victims(instructions) == []
    assert why in told(instructions)["m0"]


def test_victims_are_looked_for_on_all_nodes_before_a_budget_is_violated(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes that lack least have only pods with a budget."""
    monkeypatch.setattr(victim_plan, "_FEWEST", 4)
    scene = Scene("n0(kept0) n1(kept1) n2(kept2) n3(kept3) x(a:1+b:1) y(c:1+d:1)", budgets={"kept": 0})
    assert victims(scene.play(life)) == ["a", "b", "c", "d"]


def test_members_beyond_min_preempt_as_soon_as_enough_are_placed(life: Life) -> None:
    """No event has to come first."""
    instructions = Scene("n1 n2 n3(a)", "3", group={"min": 2}).play(life)
    assert len(binds(instructions)) == 2
    assert victims(instructions) == ["a"]


def test_a_search_without_further_steps_takes_the_best_domain_until_then(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preempt, "_A_SEARCH", 3)
    scene = Scene("n1(a^5) n2(b^5) n3/r1(c^4) n4/r1(d^4) n5/r2(e^3) n6/r2(f^3)", group=WITHIN_RACK)
    assert victims(scene.play(life)) == ["a", "b"]


def test_a_search_ends_within_a_domain(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that differ are tried without the pods of each of 8 priorities."""
    tries, best_plan = list[int](), PlanSearch.best_plan

    def count(search: PlanSearch) -> Turns[VictimPlan | None]:
        plan = yield from best_plan(search)
        tries.append(search.try_count)
        return plan

    monkeypatch.setattr(preempt, "_A_SEARCH", 20)
    monkeypatch.setattr(PlanSearch, "best_plan", count)
    scene = Scene(" ".join(f"n{number}(p{number}^{number})" for number in range(8)), "1:1 1:2 " * 5, label="rank")
    assert "ran out of steps" in told(scene.play(life))["m0"]
    assert max(tries) < 20 + 10


@pytest.mark.parametrize("label", ["", RANK])
@pytest.mark.parametrize(
    ("nodes", "count", "why"),
    [
        (" ".join(f"n{number}(p{number})" for number in range(24)), 24, ""),
        (" ".join(f"n{number}(p{number}^{number % 6})" for number in range(12)), 0, NOT_HELPFUL),
    ],
    ids=["enough nodes", "too few nodes"],
)
def test_a_label_for_each_member_takes_no_more_steps(
    life: Life, nodes: str, count: int, why: str, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranks of an Indexed Job differ only by a label: the search reads it only where anti-affinity selects it."""
    monkeypatch.setattr(preempt, "_A_SEARCH", 150)
    instructions = Scene(nodes, "24", label=label).play(life)
    assert len(victims(instructions)) == count
    assert why in told(instructions).get("m0", "")


@pytest.mark.parametrize("is_nominated", [False, True])
def test_anti_affinity_of_another_pod_keeps_one_rank_off_its_node(life: Life, is_nominated: bool) -> None:
    """Of a pod that runs there, and of one that waits there for its victim to leave."""
    scene, spec = Scene("n1(a+b) n2(c)", label=RANK), {"priority": 20} | apart(HOST, **{RANK: "0"})
    scene.show(life)
    if is_nominated:
        life.see(life.make_pod("guard", [{}, {}], spec=spec | {"nodeSelector": {HOST: "n1"}}))
        assert len(victims(life.work())) == 1
    else:
        life.see(life.make_pod("guard", spec=spec | {"nodeName": "n1"}))
    members = scene.come(life)
    assert len(victims(life.work())) == 2
    assert [life.machine.reservations.node_of(member.metadata.uid) for member in members] == ["n2", "n1"]
