"""VFs that are made for the test alone: only on a PF without any."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from cli.node.errors import NodeError
from cli.node.hardware.numvfs import temporary_vfs


@pytest.mark.parametrize("present", ["4", None])
def test_a_pf_with_vfs_is_left_alone(tmp_path: Path, present: str | None) -> None:
    """Their number cannot be changed without removing all, and somebody may use one."""
    if present is not None:
        (tmp_path / "sriov_numvfs").write_text(f"{present}\n")
    message = f"option make_vfs: 8, and sriov_numvfs of the PF is {present!r}"
    with pytest.raises(NodeError, match=message), temporary_vfs(tmp_path, 8):
        pass
    assert not (tmp_path / "sriov_numvfs").exists() or (tmp_path / "sriov_numvfs").read_text() == f"{present}\n"


def test_vfs_are_removed_again(tmp_path: Path) -> None:
    """Whatever happens in between; the times are in the report."""
    (tmp_path / "sriov_numvfs").write_text("0\n")
    (tmp_path / "sriov_drivers_autoprobe").write_text("1\n")
    for vf in range(2):
        (tmp_path / f"virtfn{vf}" / "driver").mkdir(parents=True)
    with ExitStack() as stack:
        times = stack.enter_context(temporary_vfs(tmp_path, 2))
        assert (tmp_path / "sriov_numvfs").read_text() == "2\n"
    assert (tmp_path / "sriov_numvfs").read_text() == "0\n"
    assert times.keys() == {"vfs", "autoprobe", "make-s", "bound", "bound-more-s", "remove-s"}
    assert (times["bound"], times["autoprobe"]) == (2, "1")
