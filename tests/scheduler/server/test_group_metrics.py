"""What the scheduler exposes about groups."""

from scheduler.server.metrics import _MachineCollector
from tests.scheduler.group_life import Life, binds


def _samples(life: Life) -> dict[str, float]:
    """Return the samples about groups, by name and label."""
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for metric in _MachineCollector(life.machine).collect()
        for sample in metric.samples
        if "group" in sample.name
    }


def test_groups_are_counted_by_state_and_their_decisions_by_result(life: Life) -> None:
    """One is placed and lacks room for a further member then, one waits, one is incomplete; each result begins at 0."""
    assert set(_samples(life).values()) == {0.0}
    life.nodes("n1", "n2", "n3")
    life.see(*(life.member() for _ in range(4)))
    assert len(binds(life.work())) == 3
    life.see(*(life.member(group='{"name":"other","min":2}') for _ in range(2)))
    life.see(life.member(group='{"name":"third","min":2}'))
    life.work()
    assert _samples(life) == {
        "mooring_waiting_groups queued": 2.0,
        "mooring_waiting_groups incomplete": 1.0,
        "mooring_group_decisions_total scheduled": 1.0,
        "mooring_group_decisions_total unschedulable": 2.0,
        "mooring_group_decisions_total error": 0.0,
        "mooring_group_members_placed_total": 3.0,
    }
