"""Which claims count: two pods that claim one VF, and what a node still holds."""

from collections.abc import Iterable

import pytest

from mooring.annotations.inventory import Out
from mooring.indexes import Indexes
from scheduler.constraints.protocol import VFS
from scheduler.cycle.instructions import Instruction, Report
from scheduler.kube.objects import Pod
from tests.scheduler.group_life import claiming
from tests.scheduler.state.life import Life
from tests.scheduler.state.steps import notices, reports_of


def _claimant(life: Life, name: str) -> Pod:
    """Make a bound pod that claims the only VF of n1."""
    return claiming(life.make_pod(name, node="n1"), 0)


def _told(instructions: Iterable[Instruction]) -> tuple[list[str], list[str]]:
    """Return the pods with a report, and the names in the log."""
    instructions = list(instructions)
    reports = [one.pod.key for one in instructions if isinstance(one, Report)]
    return reports, [one.fields["reason"] for one in notices(instructions) if one.subject == "dispute"]


BOTH = (["default/one", "default/two"], ["claimed by default/one, default/two"])


@pytest.mark.parametrize("first", ["node", "pods"])
def test_a_vf_that_two_pods_claim_is_reported_whatever_is_listed_first(first: str, life: Life) -> None:
    """After a start nodes and pods come in any order: only together they show a dispute."""
    pods = [_claimant(life, name) for name in ("one", "two")]
    found = life.see(life.n1(vfs=1), *pods) if first == "node" else life.see(*pods, life.n1(vfs=1))
    assert _told(found) == BOTH
    assert all("default/one, default/two" in message for message in reports_of(found))
    assert life.machine.vf_disputes.dispute_counts == {VFS: 1}


def test_a_dispute_is_reported_once(life: Life) -> None:
    """Not at each heartbeat of the node; a third claimant is news."""
    life.see(life.n1(vfs=1), _claimant(life, "one"), _claimant(life, "two"))
    assert _told(life.see(life.n1(vfs=1, numa=1))) == ([], [])
    assert len(_told(life.see(_claimant(life, "three")))[0]) == 3


def test_a_new_leader_reports_the_disputes_that_remain(life: Life) -> None:
    """The one before may have ended before it reported; a dispute that is over is not reported."""
    life.see(life.n1(vfs=1), one := _claimant(life, "one"), _claimant(life, "two"))
    assert _told(life.machine.vf_disputes.repeat_reports()) == BOTH
    life.remove(one, 1.0)
    assert life.machine.vf_disputes.repeat_reports() == []
    assert life.machine.vf_disputes.dispute_counts == {}


def test_a_disputed_vf_is_given_when_both_pods_are_gone_and_the_node_has_it_back(life: Life) -> None:
    """Neither pod's end frees it, nor both together while the node's ledger holds it for one of them."""
    one, two = (_claimant(life, name) for name in ("one", "two"))
    life.see(life.n1(vfs=1), one, two, life.make_pod(request=[{}]))
    assert life.binds() == []
    life.remove(one, 1.0)
    assert life.binds(100.0) == []
    life.see(life.n1(vfs=1, out=(Out(Indexes.of([0]), f"held by pod {one.metadata.uid}", min_tx_rate=5000),)))
    life.remove(two, 101.0)
    assert life.binds(200.0) == []
    life.see(life.n1(vfs=1))
    assert len(life.binds(300.0)) == 1
