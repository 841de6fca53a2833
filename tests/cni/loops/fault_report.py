"""What a run of `fault_loop` has to show before its silence about leftovers counts."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.seeds import Part

Report = Mapping[str, Any]
# A command that waits looks more or less often: a call that it made when they were counted it may not make again.
_MOST_MISSED = 0.25


def assert_nothing_is_left(part: Part, reports: Sequence[Report], wanted: frozenset[str]) -> None:
    """Hold the reports of one command's loops: every break left nothing, and enough was broken of every wanted kind."""
    left = [report["left_behind"] for report in reports]
    assert left == [{}] * len(reports), f"repeat with --seed {part.seed}; broken were {reports}"
    for way in ("error", "kill"):
        tried, missed = (sum(_number(report[name][way]) for report in reports) for name in ("tried", "missed"))
        assert missed <= _MOST_MISSED * (tried + missed), f"{way}: {missed} of {tried + missed} were not reached"
    broken = {kind for report in reports for kinds in report["tried"].values() for kind in kinds}
    assert broken >= wanted, f"not broken: {wanted - broken}"


def _number(kinds: Mapping[str, Sequence[int]]) -> int:
    return sum(map(len, kinds.values()))
