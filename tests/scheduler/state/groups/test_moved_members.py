"""A member that its owner moves to another group while room is kept for it."""

import pytest

from mooring import names
from tests.scheduler.group_life import Life, binds, changed, orders

OTHER = '{"name":"other","min":2}'


@pytest.mark.parametrize("before", ['{"name":"first","min":1}', ""])
def test_room_kept_for_a_member_elsewhere_does_not_count_beside_the_member(life: Life, before: str) -> None:
    """Counted twice in a dry run it would leave VFs claimed for ever, as the machine's check shows."""
    life.nodes("n1", vfs=4)
    oldest = life.member("x", OTHER, spec={"priority": 10})
    life.see(life.make_pod("running", [{}, {}, {}, {}]))
    life.bound(*binds(life.work()))
    moved = life.member("m0", before, spec={"priority": 10})
    life.see(moved)
    if before:
        life.see(life.member("m1", before, spec={"priority": 10}))
    assert orders(life.work())
    annotations = {**moved.annotations, names.GROUP: OTHER}
    life.see(oldest, changed(moved, metadata={"annotations": annotations}))
    assert len(orders(life.work(1.0))) == 1
    life.machine.check()
    assert [room.node for one in life.machine.reservations.all() for room in one.rooms.values()] == ["n1", "n1"]
