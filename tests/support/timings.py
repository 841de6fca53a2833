"""Where a run's time goes: the ten longest tests, and the sum of each tier, at the end of the report."""

from collections import defaultdict
from collections.abc import Iterable

import pytest

# A test is counted for the first of these marks that it has; `root` tests use the machine's own kernel.
TIERS = ("lab", "apiserver", "containerd", "systemd", "root")
UNMARKED = "without means of its own"
_LONGEST = 10


class Timings:
    """A pytest plugin: seconds by the wall's clock, set-up and tear-down included.

    What a shared fixture takes counts for the first test that uses it.
    """

    def __init__(self) -> None:
        self.of_test: defaultdict[str, float] = defaultdict(float)
        self.of_tier: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.skipped:
            return
        self.of_test[report.nodeid] += report.duration
        self.of_tier[tier_of(report.keywords)] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("longest tests, and seconds per tier")
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> list[str]:
        """Return a line for each of the longest tests and for each tier, the longest first."""
        longest = sorted(self.of_test.items(), key=_seconds, reverse=True)[:_LONGEST]
        tiers = sorted(self.of_tier.items(), key=_seconds, reverse=True)
        return [f"{seconds:8.1f} s  {name}" for name, seconds in [*longest, *tiers]]


def _seconds(item: tuple[str, float]) -> float:
    return item[1]


def tier_of(marks: Iterable[str]) -> str:
    """Return the tier that a test with these marks is counted for."""
    return next((tier for tier in TIERS if tier in marks), UNMARKED)
