"""What may lie in a folder although none of our programs has put it there."""

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

_OTHER_USER = 4711


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        # A socket's name is short, a test's folder is not.
        folder = os.open(path.parent, os.O_RDONLY)
        made.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 8 << 30)


def _of_another_user(path: Path) -> None:
    path.write_text("{}")
    os.chown(path, _OTHER_USER, -1)


# By what it is, how to make it.
FOREIGN: Mapping[str, Callable[[Path], None]] = {
    "folder": Path.mkdir,
    "fifo": os.mkfifo,
    "socket": _socket,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "dangling": lambda path: path.symlink_to("/nonexistent"),
    "loop": lambda path: path.symlink_to(path.name),
    "huge": _sparse,
    "anothers": _of_another_user,
}


def litter(folder: Path, *names: str) -> list[Path]:
    """Leave one thing of each kind in a folder: under strange names, and the first ones under ``names``."""
    folder.mkdir(parents=True, exist_ok=True)
    bytes_only = os.fsdecode(b"\xff\xfe.json")
    strange = [
        *names,
        "strange name.json",
        bytes_only,
        "0000:zz:00.0.json",
        "..x",
        "UPPER.JSON",
        "n" * 255,
        "a\nb.json",
    ]
    paths = [folder / name for name in strange[: len(FOREIGN)]]
    for path, make in zip(paths, FOREIGN.values(), strict=True):
        make(path)
    return paths


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()
