"""A decision about a large group takes several portions; events come between them."""

import pytest

from mooring import names
from mooring.annotations.inventory import LOST, Out
from mooring.indexes import Indexes
from scheduler.kube.objects import Pod
from scheduler.state.machine import Machine
from scheduler.state.vfs.claimed_vfs import PATIENCE_S
from scheduler.state.vfs.lost_vfs import LostVfOptions
from tests.scheduler.group_life import Life, annotated, binds, changed, claiming


@pytest.fixture
def tried(life: Life) -> list[Pod]:
    """Let 20 members be tried on n0 to n19, in the first of two steps; n20 is free."""
    life.nodes(*(f"n{number}" for number in range(21)))
    return _try(life)


def _try(life: Life) -> list[Pod]:
    members = life.members(20, '{"name":"train","min":20}')
    assert life.machine.step(life.now) == []
    return members


def test_a_large_group_is_decided_in_portions_and_nobody_else_meanwhile(life: Life) -> None:
    """Between two steps none of them is in the cache, told or bound."""
    life.nodes(*(f"n{number}" for number in range(40)))
    life.members(40, '{"name":"train","min":40}')
    life.see(life.make_pod("alone", [{}, {}]))
    for _ in range(2):
        assert life.machine.step(0.0) == []
        assert list(life.machine.cache.assigned_pods()) == []
    assert len(binds(life.machine.step(0.0) or [])) == 40
    assert life.machine.step(0.0) is not None
    life.machine.check()


@pytest.mark.parametrize(("spare", "expected"), [(1, 20), (0, 0)])
def test_a_node_that_goes_between_portions_takes_only_its_member_along(life: Life, spare: int, expected: int) -> None:
    life.nodes(*(f"n{number}" for number in range(20 + spare)))
    _try(life)
    life.machine.check()
    life.remove_node("n0")
    nodes = {one.assigned.node for one in binds(life.work())}
    assert len(nodes) == expected
    assert "n0" not in nodes
    assert len(list(life.machine.cache.assigned_pods())) == expected


@pytest.mark.parametrize("how", ["deleted", "changed", "bound elsewhere"])
def test_a_member_that_goes_or_changes_between_portions_ends_the_decision(
    life: Life, tried: list[Pod], how: str
) -> None:
    """Nobody is assumed. The group is decided about again, if it is still complete."""
    pod = tried[0]
    if how == "deleted":
        life.gone(pod)
        assert binds(life.work()) == []
        assert list(life.machine.cache.assigned_pods()) == []
        life.see(life.member("other", '{"name":"train","min":20}'))
        assert len(binds(life.work())) == 20
    elif how == "changed":
        life.see(annotated(pod, {names.REQUEST: "[{}]"}))
        assert sorted(len(one.pod_info.interfaces) for one in binds(life.work())) == [1] + [2] * 19
    else:
        life.see(changed(pod, spec={"nodeName": "n20"}))
        assert [one.uid for one in life.machine.cache.assigned_pods()] == [pod.metadata.uid]
        assert len(binds(life.work())) == 19


def test_our_own_status_writes_do_not_end_a_decision(life: Life, tried: list[Pod]) -> None:
    for pod in tried:
        life.see(changed(pod, status={"conditions": [{"type": "PodScheduled", "status": "False", "message": "m"}]}))
    assert len(binds(life.machine.step(0.0) or [])) == 20


@pytest.mark.usefixtures("tried")
def test_a_member_that_is_only_tried_disputes_no_vf(life: Life) -> None:
    """A pod that is shown as bound has it, by the last leader or another scheduler; the member is placed elsewhere."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    pod = life.make_pod("bound", [{}, {}], node="n0", metadata={"ownerReferences": [job]})
    assert life.see(claiming(pod, 0, 1)) == []
    assert life.machine.vf_disputes.dispute_counts == {}
    found = binds(life.work())
    assert len(found) == 20
    assert "n0" not in {one.assigned.node for one in found}
    life.bound(*found)
    # It has not started by then, and nothing speaks against it.
    assert life.work(PATIENCE_S) == []


def test_a_member_that_is_only_tried_has_lost_no_vf(life: Life) -> None:
    """Where the node shows one of them as lost meanwhile, the member is placed elsewhere; it is never evicted."""
    life = life.successor(Machine("mooring", lost_vf_options=LostVfOptions(after_s=60.0)))
    life.nodes(*(f"n{number}" for number in range(21)))
    _try(life)
    life.show_node("n0", life.make_pf(vfs=2, out=(Out(Indexes.of([0]), LOST),)))
    assert life.machine.lost_vfs.next_due() is None
    found = binds(life.work())
    assert "n0" not in {one.assigned.node for one in found}
    assert len(found) == 20


def test_what_was_tried_in_vain_leaves_no_trace(life: Life) -> None:
    life.nodes("n1", "n2")
    life.gone(*life.place(life.make_pod("first", [{}])))
    before = {name: dict(life.machine.cache.free_since(name)) for name in ("n1", "n2")}
    life.see(*(life.member() for _ in range(3)))
    assert binds(life.work(5.0)) == []
    assert {name: dict(life.machine.cache.free_since(name)) for name in ("n1", "n2")} == before
