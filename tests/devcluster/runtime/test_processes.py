"""Which processes are found by their arguments and parents."""

from pathlib import Path

import pytest

from devcluster.runtime.processes import started_with, with_children


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A process table: a shim with a child and a grandchild, a neighbour's shim, and an entry that vanished."""
    table = {
        10: (1, "shim\0-address\0/a\0"),
        11: (10, "pause\0"),
        12: (11, "sh) x\0"),
        20: (1, "shim\0-address\0/ab\0"),
    }
    for pid, (parent, arguments) in table.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_text(arguments)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b) S {parent} 0 0")
    (tmp_path / "30").mkdir()
    (tmp_path / "self").mkdir()
    return tmp_path


def test_only_processes_with_option_and_value_in_a_row_are_found(proc: Path) -> None:
    """A longer value is a different value."""
    assert started_with("-address", "/a", proc) == [10]


def test_children_of_children_belong_to_the_family(proc: Path) -> None:
    """Parents come first; a process that is gone is left out."""
    assert with_children([10, 99], proc) == [10, 11, 12]
