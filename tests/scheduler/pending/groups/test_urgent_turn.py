"""A long decision about a group that comes before all others of its priority is not set aside for them."""

import pytest

from scheduler.cycle.instructions import Instruction
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome
from tests.scheduler.group_life import Life, binds, bound_names, fill
from tests.scheduler.pending.groups.conftest import MakeLife
from tests.scheduler.pending.groups.hold_life import HOLD_S

FOUR = '{"name":"four","min":4}'
NODES = ("n1", "n2", "n3", "n4")


@pytest.fixture
def life(make_life: MakeLife) -> Life:
    """Return a machine whose decisions may be set aside after each member."""
    return make_life(portion=1, hold_s=HOLD_S)


def _four(life: Life) -> list[Instruction]:
    life.members(4, FOUR)
    return life.work()


def _singles(life: Life, name: str, number: int, priority: int = 0) -> None:
    life.see(*(life.make_pod(f"{name}-{one}", [{}, {}], spec={"priority": priority}) for one in range(number)))


def test_the_room_that_becomes_free_goes_to_the_group_that_has_first_call(life: Life) -> None:
    """Single pods wait all the time, and each node that becomes free wakes one of them too."""
    running = fill(life, *NODES)
    _four(life)
    life.work(HOLD_S + 2.0)
    started: list[str] = []
    for number, pod in enumerate(running):
        _singles(life, f"next-{number}", 1)
        life.work(10.0)
        life.gone(pod)
        started += bound_names(life.work(10.0))
    assert started == ["m0", "m1", "m2", "m3"]


def _half(life: Life) -> list[Pod]:
    """Let one of the four be bound, and others of a higher priority take the room of the rest; return those."""
    life.nodes(*NODES)
    decided = binds(_four(life))
    life.bound(*decided[:1])
    for decision in decided[1:]:
        life.machine.finished(decision, Outcome("forbidden", "a webhook"), life.now)
    _singles(life, "taking", 3, priority=9)
    return life.bound(*binds(life.work()))


def test_the_rest_of_a_group_that_is_half_placed_gets_the_room_that_becomes_free(life: Life) -> None:
    """Single pods of its priority that wait for the same room do not come between its members."""
    taking = _half(life)
    _singles(life, "waiting", 3)
    life.work(20.0)
    life.gone(*taking)
    assert bound_names(life.work(20.0)) == ["m1", "m2", "m3"]


def test_pods_of_a_higher_priority_do_not_wait_for_it(life: Life) -> None:
    """They come while the decision is under way, and take the room of one that is tried."""
    taking = _half(life)
    life.work(20.0)
    life.gone(*taking)
    life.now += 20.0
    life.machine.step(life.now)
    _singles(life, "higher", 1, priority=5)
    assert bound_names(life.work()) == ["higher-0"]


def test_others_have_their_turn_when_they_have_waited_long_and_then_for_as_long(life: Life) -> None:
    """From half a second after the group's turn began, pods take the room until one second is over, in any decision.

    No room is kept for it yet.
    """
    running = _half(life)
    life.work(10.0)
    life.gone(*running)
    life.now += 10.0
    assert life.machine.step(life.now) == []
    for name, later_s in (("first", 0.5), ("second", 0.4)):
        _singles(life, name, 3)
        found = life.work(later_s)
        assert bound_names(found) == [f"{name}-{number}" for number in range(3)]
        life.gone(*life.bound(*binds(found)))
    _singles(life, "third", 3)
    assert bound_names(life.work(0.1)) == ["m1", "m2", "m3"]
