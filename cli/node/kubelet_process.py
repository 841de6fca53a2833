"""Read command line and age of a host's kubelet process from /proc."""

import os
from collections.abc import Iterator
from pathlib import Path

from cli.node.plan.kubelet.command_line import UNIT
from cli.node.plan.states import KubeletProcess

_NAME = "kubelet"


def kubelet_process(root: Path) -> KubeletProcess | None:
    """Return the host's kubelet process, None without one; one of `UNIT` before one of another unit."""
    return min(_kubelets(root / "proc"), key=lambda process: process.unit != UNIT, default=None)


def _kubelets(proc: Path) -> Iterator[KubeletProcess]:
    for folder in sorted(proc.glob("[0-9]*"), key=lambda path: path.name):
        try:
            arguments = tuple((folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0"))
            if Path(arguments[0]).name == _NAME and (unit := _unit(folder)) is not None:
                yield KubeletProcess(arguments, _age_s(proc, folder), unit)
        except OSError:
            # The process has ended.
            continue


def _unit(folder: Path) -> str | None:
    """Return the host's unit that a process belongs to; None for a kubelet in a container's own system (kind)."""
    try:
        groups = (folder / "cgroup").read_text().splitlines()
    except FileNotFoundError:
        return UNIT if folder.exists() else None
    for group in groups:
        names = group.rpartition(":")[2].strip("/").split("/")
        units = [name for name in names if name.endswith((".service", ".scope"))]
        if units and (units[0] == UNIT or UNIT not in units):
            return units[0]
    return None


def _age_s(proc: Path, folder: Path) -> float:
    """Return the age of a process in seconds, infinite if it is unknown (proc_pid_stat(5), field 22)."""
    try:
        ticks = int((folder / "stat").read_text().rpartition(")")[2].split()[19])
        uptime_s = float((proc / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return float("inf")
    return uptime_s - ticks / os.sysconf("SC_CLK_TCK")
