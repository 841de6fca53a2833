"""The report's end names the longest tests and the tiers' sums."""

import pytest

from tests.support.timings import UNMARKED, Timings, tier_of


def _report(name: str, when: str, duration: float, *marks: str) -> pytest.TestReport:
    keywords = dict.fromkeys(marks, 1)
    return pytest.TestReport(name, (name, 1, name), keywords, "passed", None, when, duration=duration)  # type: ignore[arg-type]


def test_a_tests_phases_are_added_up_and_each_tier_has_its_sum() -> None:
    timings = Timings()
    for report in (
        _report("slow", "setup", 2.0, "lab"),
        _report("slow", "call", 3.0, "lab"),
        _report("quick", "call", 0.5),
    ):
        timings.pytest_runtest_logreport(report)
    assert [line.split() for line in timings.lines()] == [
        ["5.0", "s", "slow"],
        ["0.5", "s", "quick"],
        ["5.0", "s", "lab"],
        ["0.5", "s", *UNMARKED.split()],
    ]


@pytest.mark.parametrize(("marks", "tier"), [(("lab", "root"), "lab"), (("root",), "root"), ((), UNMARKED)])
def test_a_test_counts_for_the_first_tier_of_its_marks(marks: tuple[str, ...], tier: str) -> None:
    assert tier_of(marks) == tier
