"""Which part of a loop a seed chooses, and where the seed comes from."""

import subprocess
from pathlib import Path

import pytest

from tests.support.seeds import VARIABLE, Part, chosen_seed, commit_seed

CALLS = [*(("read", number) for number in range(1, 41)), ("write", 1)]


def test_a_part_is_a_sixteenth_of_each_kind_and_the_same_each_time() -> None:
    """A kind of one call is never left out: what is broken of it is broken in every run."""
    part = Part(7).of_each_kind(CALLS)
    assert [kind for kind, _ in part] == ["read"] * 3 + ["write"]
    assert part == sorted(part)
    assert part == Part(7).of_each_kind(CALLS)


def test_seeds_take_other_parts_and_together_all() -> None:
    """Calls that one commit leaves out may be taken by the next."""
    assert Part(7).of_each_kind(CALLS) != Part(8).of_each_kind(CALLS)
    assert Part(7).of_each_kind(CALLS, "error") != Part(7).of_each_kind(CALLS, "kill")
    assert {call for seed in range(240) for call in Part(seed).of_each_kind(CALLS)} == set(CALLS)


def test_the_whole_is_every_call() -> None:
    """The whole does not depend on the seed."""
    assert Part(7, whole=True).of_each_kind(CALLS) == CALLS


def test_nothing_has_no_part() -> None:
    """An empty list of calls gives an empty part; the loop itself must fail then."""
    assert Part(7).of([]) == []


def test_the_option_goes_before_the_environment_and_that_before_the_commit() -> None:
    """A seed given by a person comes first."""
    root = Path(__file__).parent
    assert chosen_seed(3, {VARIABLE: "4"}, root) == 3
    assert chosen_seed(None, {VARIABLE: "4"}, root) == 4
    assert chosen_seed(None, {}, root) == commit_seed(root)


def test_the_seed_is_the_commits(tmp_path: Path) -> None:
    """Eight digits of its id; outside git, and where nothing was committed, always the same one."""
    assert commit_seed(tmp_path) == 1
    git = ("git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=n@example")
    subprocess.run((*git, "init", "--quiet"), check=True)
    assert commit_seed(tmp_path) == 1
    subprocess.run((*git, "commit", "--quiet", "--allow-empty", "--message", "first"), check=True)
    head = subprocess.run((*git, "rev-parse", "HEAD"), capture_output=True, text=True, check=True).stdout
    assert f"{commit_seed(tmp_path):08x}" == head[:8]


def test_the_seed_and_how_to_repeat_it_stand_in_the_header(pytestconfig: pytest.Config) -> None:
    """A reader of a failed run can repeat it."""
    (line,) = [
        line
        for line in pytestconfig.hook.pytest_report_header(config=pytestconfig, start_path=Path())
        if "seed" in str(line)
    ]
    assert "--seed" in str(line)
