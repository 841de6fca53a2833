"""Groups that are decided about at the same time take turns, and keep what they have found meanwhile."""

from collections.abc import Callable

import pytest

from mooring.annotations.inventory import Pf
from scheduler.cycle.groups.row_contents import RowContents
from scheduler.kube.objects import Node, Pod
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, binds

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
MakePod = Callable[..., Pod]
# A first slice has some 180 members of these, a later one 720.
MEMBERS = 1000


@pytest.fixture
def life(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Life:
    return Life(machine, make_node, make_pf, make_pod)


def _steps(life: Life, groups: int, **fields: object) -> int:
    """Return after how many steps all groups are bound whole."""
    for group in range(groups):
        asks = f'{{"name":"g{group}","min":{MEMBERS}}}'
        life.see(*(life.member(f"g{group}-{number}", asks, request=[{}], **fields) for number in range(MEMBERS)))
    steps, bound = 0, 0
    while (made := life.machine.step(life.now)) is not None:
        steps, bound = steps + 1, bound + len(binds(made))
    life.machine.check()
    assert bound == groups * MEMBERS
    return steps


@pytest.mark.parametrize("groups", [1, 3])
def test_groups_at_the_same_time_take_few_turns_more_than_one_after_another(life: Life, groups: int) -> None:
    """What an earlier one takes is the most that a later one places again."""
    life.nodes(*(f"n{number}" for number in range(100)), vfs=30)
    assert _steps(life, groups) <= 75 * groups


def test_a_row_that_is_again_as_it_was_has_not_changed(life: Life) -> None:
    """Whatever was tried on it; one that a pod has taken has, and one whose node is another."""
    life.nodes("n0", "n1", "n2", "n3")
    nodes, cache = life.machine.cache.nodes, life.machine.cache
    before, seen = RowContents(nodes), nodes.changes.end
    life.see(life.member("m", "", request=[{}]))
    (bind,) = binds(life.work())
    life.nodes("n2", labels={"another": "label"})
    life.nodes("n2")
    row, changed = nodes.row_of[bind.assigned.node], nodes.row_of["n2"]
    assert set(before.differing(nodes.changes.since(seen))) == {row, changed}
    cache.retract(bind.assigned)
    assert row in nodes.changes.since(seen)
    assert before.differing(nodes.changes.since(seen)) == [changed]
    cache.assume(bind.assigned, life.now)
