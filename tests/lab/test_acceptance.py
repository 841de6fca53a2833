"""The acceptance test of rit-k8s-rdma as the command that a person runs: RDMA between two pods on the lab kernel."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.acceptance import Report, Run, judged, table

ROOT = Path(__file__).parent.parent.parent
LIMITS = (100, 20)
# The lab sends by the CPU that it gets: what a core that is shared with much else sends all the same.
LAB_LIMITS = (20, 5)
# That traffic flows is true if it once did; that it stays under its limit must be true each time.
MOST_RUNS = 3
TOO_LITTLE = ("hardly flows", "does not run free")


def acceptance(*flags: str) -> "subprocess.CompletedProcess[str]":
    command = (sys.executable, "-m", "bench.acceptance", *flags)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=490, check=False)


def measured() -> Any:
    """Return the first report of which traffic flowed; in none of them may anything else be wrong."""
    for number in range(1, MOST_RUNS + 1):
        done = acceptance("--json", "--seconds", "2", "--rates", *map(str, LAB_LIMITS))
        assert done.returncode in (0, 1), done.stdout + done.stderr
        report = json.loads(done.stdout)
        faults = [run["fault"] for run in report["runs"] if run["fault"]]
        assert report["passed"] == (not faults) == (done.returncode == 0)
        if not faults:
            return report
        assert all(fault.startswith(TOO_LITTLE) for fault in faults), report
        assert number < MOST_RUNS, report
    raise AssertionError("there is a last run")


@pytest.mark.lab
@pytest.mark.timeout(1500)
@pytest.mark.slow
def test_rdma_traffic_between_two_pods_stays_under_their_limit_and_is_free_without_one() -> None:
    """20 and 5 Mb/s, at most 15 % over; real ADD and DEL, exclusive mode, RoCE between the pods."""
    report = measured()
    assert [run["max_tx_rate"] for run in report["runs"]] == [None, *LAB_LIMITS]
    free, *limited = (run["mbps"] for run in report["runs"])
    assert free >= 1.5 * max(LAB_LIMITS)
    for limit, mbps in zip(LAB_LIMITS, limited, strict=True):
        assert limit / 2 <= mbps <= limit * 1.15
    assert any("min_tx_rate" in what for what in report["not_measured"])


@pytest.mark.lab
@pytest.mark.timeout(500)
@pytest.mark.slow
def test_a_rate_that_is_not_as_it_should_be_fails_the_command() -> None:
    """The lab's link is not 1.5 times faster than 20 Gb/s: the run without a limit does not count as free."""
    done = acceptance("--seconds", "1", "--rates", "20000")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "does not run free: less than 1.5 times 20000 Mb/s" in done.stdout
    assert "BROKEN" in done.stdout


@pytest.mark.parametrize(
    ("limit", "mbps", "fault"),
    [
        (100, 115.0, None),
        (100, 115.1, "exceeds the limit by more than 15 %"),
        (20, 23.0, None),
        (20, 23.1, "exceeds the limit by more than 15 %"),
        (20, 9.9, "hardly flows: less than half of the limit"),
        (None, 150.0, None),
        (None, 149.0, "does not run free: less than 1.5 times 100 Mb/s"),
    ],
)
def test_a_measurement_is_judged_by_its_limit(limit: int | None, mbps: float, fault: str | None) -> None:
    """At most 15 % over; far below, nothing was limited, for nothing flowed."""
    assert judged(limit, mbps, LIMITS) == Run(limit, mbps, fault)


def test_the_table_says_what_was_not_measured() -> None:
    """A reader sees the verdict of each run, and what may not be concluded."""
    report = Report("eth0", "simvf", "6.12", 15, (judged(None, 900.0, LIMITS), judged(20, 30.0, LIMITS)), passed=False)
    shown = table(report).splitlines()
    assert "     20 Mb/s    30.0 Mb/s         150 %   exceeds the limit by more than 15 %" in shown
    assert "BROKEN: at most 115 % of max_tx_rate, and free without one" in shown
    assert sum(line.startswith("not measured: ") for line in shown) == 4


def test_without_a_lab_the_command_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit status is 2: nothing was measured."""
    monkeypatch.setenv("MOORING_LAB", "")
    done = acceptance()
    assert done.returncode == 2
    assert "no lab kernel: ./run lab builds it" in done.stderr
