"""Today's code decides as it did when its decisions were recorded.

What is meant to differ is recorded again, ``python -m tests.scheduler.decisions --write``, and named in the commit.
Decisions about single pods stay equal. Groups and exact fills may only differ by what ``docs/jobs.md`` lists.
"""

import pytest

from tests.scheduler.decisions.recording import SEEDS, Recorded, decide, differences, read

# An ordinary run takes every second ten of the seeds: each ten has all topics.
_TEN, _ONE_IN = 10, 2


@pytest.fixture(scope="module")
def recorded() -> dict[int, Recorded]:
    return read()


@pytest.mark.parametrize("first", range(0, len(SEEDS), _TEN))
def test_decisions_are_those_recorded(
    first: int, recorded: dict[int, Recorded], request: pytest.FixtureRequest
) -> None:
    """Each pod's node, VFs, units and victims; of groups how many members were placed where, and how many had to go."""
    if first // _TEN % _ONE_IN and not request.config.getoption("--long"):
        pytest.skip("runs with --long")
    found = [line for seed in range(first, first + _TEN) for line in differences(recorded[seed], decide(seed))]
    assert not found, "\n".join(["", *found])


def test_the_recorded_decisions_reach_what_they_are_kept_for(recorded: dict[int, Recorded]) -> None:
    """Preemption by pods and groups, units beside VFs, rates that change, groups in a domain and by rails."""
    lines = [(one.topic, line) for one in recorded.values() for line in one.lines]

    def count(topic: str, *words: str) -> int:
        return sum(where == topic and all(word in line for word in words) for where, line in lines)

    assert list(recorded) == list(SEEDS)
    assert count("pods", " nominated ") > 60
    assert min(count("units", ' gpu ["'), count("units", ' fpga ["'), count("units", " do not fit together")) > 30
    assert min(count("rates", " rates 2 "), count("rates", " Deferred ")) > 20
    assert min(count("groups", " within rack", " in r"), count("groups", " rails same", " in r")) > 20
    assert min(count("groups", " rails index", " in r"), count("groups", " apart", " in r")) > 15
    assert sum(one.counts["groups: victims"] for one in recorded.values()) > 60
    assert min(count("fills", "a group"), count("fills", " VFs on ")) > 10


def test_a_decision_that_differs_is_named(recorded: dict[int, Recorded]) -> None:
    """By its seed, with the line that is gone and the one that is new."""
    before = recorded[0]
    pod, node, *_ = before.lines[0].split()
    now = Recorded(0, before.topic, (f"{pod} {node} 9.9", *before.lines[1:]))
    assert list(differences(before, now)) == [
        f"seed 0 pods - {before.lines[0]}",
        f"seed 0 pods + {pod} {node} 9.9",
    ]
    assert len(list(differences(before, Recorded(0, before.topic, (*reversed(before.lines),))))) == 1
