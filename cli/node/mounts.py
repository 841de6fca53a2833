"""Refuse an installation into folders where nothing can be written or executed, before anything is changed."""

import os
import posixpath
import subprocess
from collections.abc import Iterable
from pathlib import Path

from cli.node.errors import NodeError
from cli.node.look import below

# What is kept over a reboot.
_STATE = "/var/lib/mooring"
# The type of programs. systemd may not execute a file below /var (var_t), to which /opt leads with ostree:
# https://github.com/openshift/os/issues/1624, https://github.com/k0sproject/k0sctl/issues/440.
_PROGRAM_TYPE = "bin_t"


def refuse_mounts(root: Path, home: str, cni_bin: str, changed: Iterable[str]) -> None:
    """Raise NodeError if a folder is on a file system that is mounted read-only or, for programs, noexec.

    ``changed`` are the files that the installation writes: its own and, for the kubelet's endpoint, those of others.
    """
    programs = (home, cni_bin)
    for folder in dict.fromkeys((*programs, _STATE, *map(posixpath.dirname, changed))):
        flags = os.statvfs(_existing(root, folder)).f_flag
        forbidden = folder in programs and bool(flags & os.ST_NOEXEC)
        wrong = "read-only" if flags & os.ST_RDONLY else "noexec" if forbidden else ""
        if wrong:
            advice = ": choose another one with --folder" if folder == home else ""
            raise NodeError(f"folder {folder!r} is on a file system that is mounted {wrong}{advice}")


def refuse_label(home: str) -> None:
    """Raise NodeError if SELinux's policy gives programs of the folder a type that systemd does not start.

    This host enforces the policy. Where `matchpathcon` is missing (libselinux-utils), nothing is known.
    """
    real = os.path.realpath(home)
    command = ("matchpathcon", "-n", f"{real}/current/bin/mooring-cni")
    try:
        label = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return
    kind = label.split(":")[2] if label.count(":") >= 2 else label
    if kind != _PROGRAM_TYPE:
        raise NodeError(
            f"folder {home!r}: SELinux's policy labels programs in {real!r} as {kind!r}, and systemd starts only "
            f"{_PROGRAM_TYPE!r}: choose another one with --folder (on CoreOS /usr/local/mooring), or add a rule: "
            f"semanage fcontext --add --type {_PROGRAM_TYPE} '{real}(/.*)?'"
        )


def _existing(root: Path, folder: str) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    path = below(root, folder, through=True)
    return next(one for one in (path, *path.parents) if one.is_dir())
