"""Groups that are decided about at the same time take turns, and keep what they have found meanwhile."""

import pytest

from tests.scheduler.group_life import Life, binds

# A first slice has some 180 members of these, a later one 720.
MEMBERS = 1000


@pytest.mark.parametrize("groups", [1, 3])
def test_groups_at_the_same_time_take_few_turns_more_than_one_after_another(life: Life, groups: int) -> None:
    """What an earlier one takes is the most that a later one places again."""
    life.nodes(*(f"n{number}" for number in range(100)), vfs=30)
    for group in range(groups):
        asks = f'{{"name":"g{group}","min":{MEMBERS}}}'
        life.see(*(life.member(f"g{group}-{number}", asks, request=[{}]) for number in range(MEMBERS)))
    steps, bound = 0, 0
    while (made := life.machine.step(life.now)) is not None:
        steps, bound = steps + 1, bound + len(binds(made))
    life.machine.check()
    assert bound == groups * MEMBERS
    assert steps <= 75 * groups
