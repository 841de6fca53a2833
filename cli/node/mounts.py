"""Refuse an installation into folders where nothing can be written or executed, before anything is changed."""

import os
from pathlib import Path

from cli.node.errors import NodeError
from cli.node.look import below

# Each is written: units, configuration and kernel settings; what is kept over a reboot.
_WRITTEN = ("/etc", "/var/lib")


def refuse_mounts(root: Path, home: str, cni_bin: str) -> None:
    """Raise NodeError if a folder is on a file system that is mounted read-only or, for programs, noexec."""
    for folder in (home, cni_bin, *_WRITTEN):
        flags = os.statvfs(_existing(root, folder)).f_flag
        forbidden = folder not in _WRITTEN and bool(flags & os.ST_NOEXEC)
        wrong = "read-only" if flags & os.ST_RDONLY else "noexec" if forbidden else ""
        if wrong:
            advice = ": choose another one with --folder" if folder == home else ""
            raise NodeError(f"folder {folder!r} is on a file system that is mounted {wrong}{advice}")


def _existing(root: Path, folder: str) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    path = below(root, folder, through=True)
    return next(one for one in (path, *path.parents) if one.is_dir())
