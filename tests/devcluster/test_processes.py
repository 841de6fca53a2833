"""Programs by name: started, killed, started again, ended, and none but ours."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.processes import Processes, StartError

SLEEPER = [sys.executable, "-c", "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(60)"]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path / "logs")
    yield processes
    processes.stop()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_program_is_waited_for_and_ended(processes: Processes, tmp_path: Path) -> None:
    """The caller's check decides when it is ready; after stop the program is gone."""
    processes.start("sleeper", [*SLEEPER, str(tmp_path / "ready")])
    processes.await_ready("sleeper", (tmp_path / "ready").exists)
    pid = processes.pid("sleeper")
    assert is_alive(pid)
    processes.stop()
    assert not is_alive(pid)


def test_a_killed_program_is_started_again_by_its_name(processes: Processes, tmp_path: Path) -> None:
    """The same command runs as a new process."""
    processes.start("sleeper", [*SLEEPER, str(tmp_path / "ready")])
    processes.await_ready("sleeper", (tmp_path / "ready").exists)
    first = processes.pid("sleeper")
    processes.kill("sleeper")
    (tmp_path / "ready").unlink()
    processes.restart("sleeper")
    processes.await_ready("sleeper", (tmp_path / "ready").exists)
    assert not is_alive(first)
    assert processes.pid("sleeper") != first


def test_a_program_that_ends_early_is_reported_with_its_log(processes: Processes) -> None:
    """The error holds the name, the status and the program's output."""
    processes.start("broken", [sys.executable, "-c", "raise SystemExit('no such socket')"])
    with pytest.raises(StartError, match=r"(?s)broken: ended with status 1.*no such socket"):
        processes.await_ready("broken", lambda: False)


def test_a_program_that_ignores_sigterm_is_killed(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop always ends what was started."""
    monkeypatch.setattr("devcluster.processes.END_S", 0.2)
    deaf = f"import signal; signal.signal(15, signal.SIG_IGN); {SLEEPER[-1]}"
    processes.start("deaf", [sys.executable, "-c", deaf, str(tmp_path / "ready")])
    processes.await_ready("deaf", (tmp_path / "ready").exists)
    pid = processes.pid("deaf")
    processes.stop()
    assert not is_alive(pid)
