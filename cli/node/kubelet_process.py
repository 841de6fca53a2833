"""Read command line and age of a host's kubelet process from /proc."""

import os
from collections.abc import Iterator
from pathlib import Path

from cli.node.plan.kubelet.command_line import UNIT
from cli.node.plan.states import KubeletProcess

_NAME = "kubelet"


def kubelet_process(root: Path) -> KubeletProcess | None:
    """Return the host's kubelet process, None without one."""
    return next(_kubelets(root / "proc"), None)


def _kubelets(proc: Path) -> Iterator[KubeletProcess]:
    for folder in sorted(proc.glob("[0-9]*"), key=lambda path: path.name):
        try:
            arguments = tuple((folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0"))
            if Path(arguments[0]).name == _NAME and _is_the_hosts(folder):
                yield KubeletProcess(arguments, _age_s(proc, folder))
        except OSError:
            # The process has ended.
            continue


def _is_the_hosts(folder: Path) -> bool:
    """Return whether a process belongs to the host's own unit; kubelets also run in containers (kind)."""
    try:
        groups = (folder / "cgroup").read_text().splitlines()
    except FileNotFoundError:
        return folder.exists()
    slices = [group.rpartition(":")[2].strip("/").split("/") for group in groups]
    return any(
        UNIT in names and all(name.endswith(".slice") for name in names[: names.index(UNIT)]) for names in slices
    )


def _age_s(proc: Path, folder: Path) -> float:
    """Return the age of a process in seconds, infinite if it is unknown (proc_pid_stat(5), field 22)."""
    try:
        ticks = int((folder / "stat").read_text().rpartition(")")[2].split()[19])
        uptime_s = float((proc / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return float("inf")
    return uptime_s - ticks / os.sysconf("SC_CLK_TCK")
