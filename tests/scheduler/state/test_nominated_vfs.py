"""The exact VFs of a nominated pod: a less important pod that fits beside it gets others."""

from collections.abc import Callable

from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.annotations.inventory import Pf
from mooring.kube.events import Changed, Identity
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import DeleteVictims
from scheduler.kube.objects import Node, Pod
from scheduler.state.machine import Machine
from tests.scheduler.state.preempting import Life

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]


def test_a_pod_gets_no_vf_that_a_nominated_pod_waits_for(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: Callable[..., Pod]
) -> None:
    """Two of one PF are kept for the important pod, one of them free already: the small pod's are of the other PF."""
    life = Life(machine, make_node, make_pf, make_pod)
    pfs = make_pf(0, vfs=2), make_pf(1, vfs=4, network="rail1")
    machine.nodes(Changed(Identity("n1"), make_node("n1", pfs)), 0.0)
    victim = life.assigned(0, [{"network": "rail0"}])
    both = [{"network": "rail0"}, {"network": "rail0"}]
    high = life.pod(2, both)
    assert [order.node for order in life.decide() if isinstance(order, DeleteVictims)] == ["n1"]
    life.pod(1, [{}])
    (small,) = [one for one in life.decide() if isinstance(one, Bind)]
    given = read_assignment(small.annotations[names.ASSIGNMENT])
    assert given is not None
    assert [vf.pf for vf in given.vfs] == ["pf1"]
    life.bind([small])
    life.gone(life.terminate(victim))
    assert [one.pod_info.uid for one in life.decide() if isinstance(one, Bind)] == [high.metadata.uid]
