"""Find and detach what a runtime left mounted below its folder, network namespaces included."""

import os
import subprocess
from pathlib import Path

MOUNT_TABLE = Path("/proc/self/mountinfo")


def mounts_below(folder: Path, table: Path = MOUNT_TABLE) -> list[Path]:
    """Return the mount points at and below ``folder``, the latest mounted first (proc(5), mountinfo)."""
    top = os.fspath(folder.resolve())
    points = [_unescape(line.split()[4]) for line in table.read_text(encoding="utf-8").splitlines()]
    return [Path(point) for point in reversed(points) if point == top or point.startswith(f"{top}/")]


def unmount_below(folder: Path) -> None:
    """Detach every mount below ``folder``; ignore one that is gone meanwhile."""
    for point in mounts_below(folder):
        subprocess.run(["umount", "--lazy", "--no-canonicalize", point], capture_output=True, check=False)


def _unescape(text: str) -> str:
    """Undo the octal escapes of blanks, tabs, newlines and backslashes."""
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape") if "\\" in text else text
