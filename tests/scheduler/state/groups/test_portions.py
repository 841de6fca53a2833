"""A decision about a large group takes several portions; events come between them."""

import pytest

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.inventory import LOST, Out
from mooring.indexes import Indexes
from mooring.kube.events import Changed, Identity
from scheduler.kube.objects import Pod
from scheduler.state.machine import Machine
from scheduler.state.vfs.claimed_vfs import PATIENCE_S
from scheduler.state.vfs.lost_vfs import LostVfOptions
from tests.scheduler.group_life import Life, MakeNode, MakePf, MakePod, binds, changed


def test_a_foreign_pod_between_portions_counts_for_rules_about_other_pods(life: Life) -> None:
    """It comes to a node at the end of its zone, and keeps the members off all of it."""
    for zone in ("a", "b"):
        for number in range(21):
            life.nodes(f"{zone}{number}", labels={"zone": zone})
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "noisy"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    group = '{"name":"train","min":20}'
    life.see(*(life.member(f"m{number}", group, spec={"affinity": apart}) for number in range(20)))
    assert life.machine.step(0.0) == []
    life.see(life.make_pod("noisy", node="a20", metadata={"labels": {"app": "noisy"}}))
    assert {one.assigned.node[0] for one in binds(life.work())} == {"b"}


def _many(life: Life, count: int) -> list[Pod]:
    members = [life.member(f"m{number}", f'{{"name":"train","min":{count}}}') for number in range(count)]
    life.see(*members)
    return members


def test_a_large_group_is_decided_in_portions_and_nobody_else_meanwhile(life: Life) -> None:
    """Between two steps none of them is in the cache, told or bound."""
    life.nodes(*(f"n{number}" for number in range(40)))
    _many(life, 40)
    life.see(life.make_pod("alone", [{}, {}]))
    for _ in range(2):
        assert life.machine.step(0.0) == []
        assert list(life.machine.cache.assigned_pods()) == []
    assert len(binds(life.machine.step(0.0) or [])) == 40
    assert life.machine.step(0.0) is not None
    life.machine.check()


def test_a_node_that_goes_between_portions_takes_only_its_member_along(life: Life) -> None:
    """The member is placed elsewhere; had there been no other node, nobody would be placed."""
    for spare, expected in ((1, 20), (0, 0)):
        machine = life.machine = Machine("mooring")
        life.nodes(*(f"n{number}" for number in range(20 + spare)))
        _many(life, 20)
        assert machine.step(0.0) == []
        machine.check()
        life.remove_node("n0")
        instructions = life.work()
        nodes = {one.assigned.node for one in binds(instructions)}
        assert len(nodes) == expected
        assert "n0" not in nodes
        assert len(list(machine.cache.assigned_pods())) == expected


def test_a_node_that_loses_its_vfs_between_portions_is_looked_at_again(life: Life) -> None:
    """What was tried there does not stand."""
    life.nodes(*(f"n{number}" for number in range(20)))
    _many(life, 20)
    assert life.machine.step(0.0) == []
    life.nodes("n0", vfs=1)
    assert binds(life.work()) == []
    assert list(life.machine.cache.assigned_pods()) == []


@pytest.mark.parametrize("how", ["deleted", "changed", "bound elsewhere"])
def test_a_member_that_goes_or_changes_between_portions_ends_the_decision(life: Life, how: str) -> None:
    """The group is decided about again, if it is still complete."""
    life.nodes(*(f"n{number}" for number in range(21)))
    members = _many(life, 20)
    assert life.machine.step(0.0) == []
    pod = members[0]
    if how == "deleted":
        life.gone(pod)
        life.see(life.member("other", '{"name":"train","min":20}'))
        assert len(binds(life.work())) == 20
    elif how == "changed":
        life.see(changed(pod, metadata={"annotations": {**pod.annotations, names.REQUEST: "[{}]"}}))
        assert sorted(len(one.pod_info.interfaces) for one in binds(life.work())) == [1] + [2] * 19
    else:
        life.see(changed(pod, spec={"nodeName": "n20"}))
        assert [one.uid for one in life.machine.cache.assigned_pods()] == [pod.metadata.uid]
        assert len(binds(life.work())) == 19


def test_our_own_status_writes_do_not_end_a_decision(life: Life) -> None:
    """A condition on a member that is being decided about changes nothing of what it asks for."""
    life.nodes(*(f"n{number}" for number in range(20)))
    members = _many(life, 20)
    assert life.machine.step(0.0) == []
    for pod in members:
        life.see(changed(pod, status={"conditions": [{"type": "PodScheduled", "status": "False", "message": "m"}]}))
    assert len(binds(life.machine.step(0.0) or [])) == 20


def test_a_member_that_is_only_tried_disputes_no_vf(life: Life) -> None:
    """A pod that is shown as bound has it, by the last leader or another scheduler; the member is placed elsewhere."""
    life.nodes(*(f"n{number}" for number in range(21)))
    _many(life, 20)
    assert life.machine.step(0.0) == []
    given = tuple(AssignedVf("pf0", vf, life.make_pf().vf_pci(vf), "ethernet", "rail0") for vf in range(2))
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    pod = life.make_pod("bound", [{}, {}], node="n0", metadata={"ownerReferences": [job]})
    own = dump_assignment(Assignment(pod.metadata.uid, "n0", given))
    assert life.see(changed(pod, metadata={"annotations": {**pod.annotations, names.ASSIGNMENT: own}})) == []
    assert life.machine.vf_disputes.dispute_counts == {}
    found = binds(life.work())
    assert len(found) == 20
    assert "n0" not in {one.assigned.node for one in found}
    life.bound(*found)
    # It has not started by then, and nothing speaks against it.
    assert life.work(PATIENCE_S) == []


def test_a_member_that_is_only_tried_has_lost_no_vf(make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> None:
    """Where the node shows one of them as lost meanwhile, the member is placed elsewhere; it is never evicted."""
    options = LostVfOptions(after_s=60.0)
    life = Life(Machine("mooring", lost_vf_options=options), make_node, make_pf, make_pod)
    life.nodes(*(f"n{number}" for number in range(21)))
    _many(life, 20)
    assert life.machine.step(0.0) == []
    node = make_node("n0", (make_pf(vfs=2, out=(Out(Indexes.of([0]), LOST),)),))
    life.machine.nodes(Changed(Identity("n0"), node), 0.0)
    assert life.machine.lost_vfs.next_due() is None
    found = binds(life.work())
    assert "n0" not in {one.assigned.node for one in found}
    assert len(found) == 20


def test_what_was_tried_in_vain_leaves_no_trace(life: Life) -> None:
    """Which VFs were free the longest is as it was."""
    life.nodes("n1", "n2")
    first = life.make_pod("first", [{}])
    life.see(first)
    life.gone(*life.bound(*binds(life.work())))
    before = {name: dict(life.machine.cache.free_since(name)) for name in ("n1", "n2")}
    life.see(*(life.member() for _ in range(3)))
    assert binds(life.work(5.0)) == []
    assert {name: dict(life.machine.cache.free_since(name)) for name in ("n1", "n2")} == before
