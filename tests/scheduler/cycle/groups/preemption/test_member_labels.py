"""Members with a label each, as the ranks of an Indexed Job: the search for victims regards labels only where another
pod's anti-affinity selects them.
"""

from typing import Any

import pytest

from scheduler.cycle.groups.preemption import preempt
from tests.scheduler.group_life import Life, binds, told, victims

HOST = "kubernetes.io/hostname"
INDEX = "batch.kubernetes.io/job-completion-index"
# What a search for 24 equal members on 24 nodes takes, and some more.
STEPS = 150
# Keeps the first rank off its node.
AGAINST_RANK_0: dict[str, Any] = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOST, "labelSelector": {"matchLabels": {INDEX: "0"}}}
        ]
    }
}


def _fill(life: Life, node: str, pods: int = 1, priority: int = 0) -> None:
    life.nodes(node, vfs=2 * pods, labels={HOST: node})
    spec = {"priority": priority}
    life.see(*(life.make_pod(f"on-{node}-{number}", [{}, {}], spec=spec) for number in range(pods)))
    life.bound(*binds(life.work()))


def _ranks(life: Life, count: int, *, labels: bool = True) -> list[str]:
    """Let members come that are more important than all running pods; return their uids."""
    group = f'{{"name":"train","min":{count}}}'
    members = [
        life.member(f"m{rank}", group, spec={"priority": 10}, metadata={"labels": {INDEX: str(rank)}} if labels else {})
        for rank in range(count)
    ]
    life.see(*members)
    return [member.metadata.uid for member in members]


@pytest.mark.parametrize("labels", [False, True])
def test_a_label_for_each_member_takes_no_more_steps(life: Life, labels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preempt, "_A_SEARCH", STEPS)
    nodes = [f"n{number}" for number in range(24)]
    for node in nodes:
        _fill(life, node)
    _ranks(life, 24, labels=labels)
    assert victims(life.work()) == sorted(f"on-{node}-0" for node in nodes)


@pytest.mark.parametrize("labels", [False, True])
def test_a_label_for_each_member_takes_no_more_steps_where_too_few_fit(
    life: Life, labels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods of several priorities could leave."""
    monkeypatch.setattr(preempt, "_A_SEARCH", STEPS)
    for number in range(12):
        _fill(life, f"n{number}", priority=number % 6)
    _ranks(life, 24, labels=labels)
    assert "makes room for enough members" in told(life.work())["m0"]


def test_anti_affinity_of_a_running_pod_against_one_rank_is_honoured(life: Life) -> None:
    """It keeps that rank off its node, and no other."""
    _fill(life, "n1")
    _fill(life, "n2")
    life.see(life.make_pod("guard", spec={"priority": 20, "affinity": AGAINST_RANK_0, "nodeName": "n1"}))
    uids = _ranks(life, 2)
    assert victims(life.work()) == ["on-n1-0", "on-n2-0"]
    assert [life.machine.reservations.node_of(uid) for uid in uids] == ["n2", "n1"]


def test_anti_affinity_of_a_nominated_pod_against_one_rank_is_honoured(life: Life) -> None:
    """The pods that it waits for have not left."""
    _fill(life, "n1", pods=2)
    spec = {"priority": 20, "affinity": AGAINST_RANK_0, "nodeSelector": {HOST: "n1"}}
    life.see(life.make_pod("guard", [{}, {}], spec=spec))
    assert len(victims(life.work())) == 1
    _fill(life, "n2")
    uids = _ranks(life, 2)
    assert len(victims(life.work())) == 2
    assert [life.machine.reservations.node_of(uid) for uid in uids] == ["n2", "n1"]
