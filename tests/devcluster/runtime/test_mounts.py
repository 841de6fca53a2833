"""Which mounts are found below a folder."""

from pathlib import Path

from devcluster.runtime.mounts import mounts_below

_TABLE = """\
21 1 8:1 / / rw - ext4 /dev/sda rw
30 21 0:5 / {top} rw - tmpfs none rw
31 30 0:6 / {top}/net\\040ns rw - nsfs nsfs rw
32 21 0:7 / {top}-other rw - tmpfs none rw
"""


def test_mounts_at_and_below_the_folder_are_found_latest_first(tmp_path: Path) -> None:
    """A neighbour whose name begins alike is none of them, and an escaped blank is a blank."""
    table = tmp_path / "mountinfo"
    table.write_text(_TABLE.format(top=tmp_path))
    assert mounts_below(tmp_path, table) == [tmp_path / "net ns", tmp_path]
