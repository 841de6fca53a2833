"""What happens during a search for the victims of a group, which takes many turns."""

from collections.abc import Callable

import pytest

from scheduler.cycle.groups import group_snapshot, rails
from scheduler.cycle.groups.preemption import preempt
from scheduler.cycle.instructions import Instruction
from scheduler.state.machine import Machine
from tests.scheduler.cycle.groups.preemption.scene import POLICY, WHOLE, Scene, row, show_budget
from tests.scheduler.group_life import Life, binds, bound_names, orders, victims

MANY_NODES = Scene(" ".join(f"n{number}(p{number})" for number in range(30)))


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a turn be as short as it can be, also while networks are counted."""
    monkeypatch.setattr(group_snapshot, "A_TURN", 1)
    monkeypatch.setattr(rails, "_NODE_PORTION", 1)


def _steps(life: Life, count: int) -> list[Instruction]:
    return [one for _ in range(count) for one in life.machine.step(life.now) or []]


def _cordon(life: Life) -> None:
    life.nodes("n1", spec={"unschedulable": True})


def _grow(life: Life) -> None:
    """Start another member on a node that the search reads for nothing else."""
    spec = {"schedulingGroup": {"podGroupName": "low"}, "nodeName": "n3"}
    life.see(life.member("low2", "", request=None, spec=spec))


CHANGES = [
    row("no victim is on a node that is cordoned", "n1(a) n2(b) n3(c) > b c", _cordon),
    row("no member is nominated on a node that is cordoned", "n1 n2(b^5) n3(c) > b c", _cordon),
    row(
        "a node that is removed is not waited for, though its pod is not",
        "n1(a) n2(b) n3(c) > a b",
        lambda life: life.remove_node("n3"),
        group={"rails": "same"},
    ),
    row(
        "a group that grows leaves as a whole",
        "n1(low0) n2(low1) n3(a^20) > low0 low1 low2",
        _grow,
        pod_groups={"low": WHOLE},
    ),
    row(
        "a victim stays that becomes more important by its PodGroup",
        "n1(low0) n2(b^5) n3(c^5) > b c",
        lambda life: life.pod_group("low", **POLICY, priority=30),
        pod_groups={"low": POLICY},
    ),
    row(
        "a victim stays for which a budget is created",
        "n1(kept) n2(b^5) n3(c^5) > b c",
        lambda life: show_budget(life, "kept"),
    ),
]


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("steps", range(0, 16, 2))
@pytest.mark.parametrize(("scene", "expected", "change"), CHANGES)
def test_a_change_during_a_search_counts(
    life: Life, scene: Scene, expected: str, change: Callable[[Life], None], steps: int
) -> None:
    scene.show(life)
    scene.come(life)
    assert not orders(_steps(life, steps))
    change(life)
    assert " ".join(victims(life.work())) == expected


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("is_deleted", [False, True])
def test_other_pods_are_scheduled_during_a_long_search(life: Life, is_deleted: bool) -> None:
    """The search is set aside as other decisions about groups are, and continues, unless a member is deleted."""
    life = life.successor(Machine("mooring", portion=1))
    MANY_NODES.show(life)
    members = MANY_NODES.come(life)
    assert not orders(_steps(life, 20))
    life.see(life.make_pod("other"))
    instructions = next(found for _ in range(10) if binds(found := _steps(life, 1)))
    assert bound_names(instructions) == ["other"]
    assert life.machine.group_scheduling.paused_decisions
    life.bound(*binds(instructions))
    if is_deleted:
        life.gone(members[0])
    assert len(victims(life.work())) == len(life.machine.reservations) == (0 if is_deleted else 2)
    life.machine.check()


def test_a_search_that_changes_have_kept_from_its_end_starts_again(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """No event has to come first."""
    monkeypatch.setattr(preempt, "_MAX_ROUNDS", 0)
    assert victims(Scene("n1(a) n2(b)").play(life)) == []
    monkeypatch.undo()
    assert victims(life.work(15.0)) == ["a", "b"]


def test_a_turn_ends_in_domains_that_no_member_may_be_in(life: Life) -> None:
    """A trial there needs no dry run, but takes time."""
    nodes = " ".join(f"n{number}/r{number}:1" for number in range(200))
    scene = Scene(f"{nodes} large/r200(a:4)", group={"within": "rack"})
    scene.show(life)
    scene.come(life)
    steps, instructions = 0, list[Instruction]()
    while not orders(instructions):
        instructions, steps = _steps(life, 1), steps + 1
    assert steps > 2
