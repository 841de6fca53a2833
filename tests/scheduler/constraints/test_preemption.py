"""Preemption of less important pods for one that lacks units of another kind."""

from scheduler.constraints.kinds import Kinds
from scheduler.cycle.instructions import DeleteVictims, Instruction
from scheduler.kube.objects import Pod
from tests.scheduler.conftest import MakeNode, MakePod
from tests.scheduler.constraints.conftest import StartLife
from tests.scheduler.constraints.life import Life, bound, units_of

INVENTORY, REQUEST = "mooring.dev/inventory.licence", "mooring.dev/request.licence"


def _asking(count: int) -> dict[str, str]:
    return {REQUEST: f'{{"name":"cad","count":{count}}}'}


def _assigned(life: Life, make_pod: MakePod, count: int) -> Pod:
    pod = make_pod(annotations=_asking(count))
    shown = bound(pod, life.place(pod))
    life.see(shown)
    return shown


def _victims(instructions: list[Instruction] | None) -> list[str]:
    return [
        assigned.uid for order in instructions or () if isinstance(order, DeleteVictims) for assigned in order.victims
    ]


def test_a_pod_that_holds_the_units_is_preempted_for_them(
    licences: Kinds, start_life: StartLife, make_node: MakeNode, make_pod: MakePod
) -> None:
    """Of three licences one pod has two and another one: for two more the first goes, and its units are given on."""
    life = start_life(licences)
    life.see(make_node("n1", annotations={INVENTORY: '{"v":1,"cad":3}'}))
    large, small = _assigned(life, make_pod, 2), _assigned(life, make_pod, 1)
    high = make_pod(annotations=_asking(2), spec={"priority": 1})
    life.see(high)
    assert _victims(life.machine.step(life.now)) == [large.metadata.uid]
    life.machine.check()
    life.end(large)
    assert units_of(life.step(), "licence") == ["cad/0", "cad/1"]
    assert life.machine.cache.assigned(small.metadata.uid) is not None


def test_no_pod_is_preempted_for_more_units_than_the_node_has(
    licences: Kinds, start_life: StartLife, make_node: MakeNode, make_pod: MakePod
) -> None:
    """The holder stays, and its units stay its own."""
    life = start_life(licences)
    life.see(make_node("n1", annotations={INVENTORY: '{"v":1,"cad":2}'}))
    holder = _assigned(life, make_pod, 2)
    life.see(make_pod(annotations=_asking(3), spec={"priority": 1}))
    assert _victims(life.machine.step(life.now)) == []
    life.machine.check()
    assert life.machine.cache.assigned(holder.metadata.uid) is not None
