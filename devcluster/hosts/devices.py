"""The nodes in /dev/infiniband of a simulated host: with the numbers of real ones, and no device behind them.

rdma_cm is a misc device (major 10) of whichever minor was free, umad and issm are root's alone as udev leaves them.
Where mknod is not permitted (a user namespace) regular files stand there.
"""

import os
import stat
from pathlib import Path

from devcluster.hosts.nic import Host
from devcluster.hosts.sysfs import Node, device_number

_RDMA_CM = (10, 58)
_MODES: dict[Node, int] = {"uverbs": 0o666, "umad": 0o600, "issm": 0o600}


def make_nodes(dev: Path, host: Host) -> None:
    """Make <dev>/infiniband with rdma_cm and each function's uverbs, umad and issm, replacing what is there."""
    folder = dev / "infiniband"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    make_node(folder / "rdma_cm", 0o666, *_RDMA_CM)
    for function in (each for each in host.functions() if each.has_rdma):
        for kind, mode in _MODES.items():
            make_node(folder / f"{kind}{function.number}", mode, *device_number(kind, function.number))


def make_node(path: Path, mode: int, major: int, minor: int) -> None:
    """Make a character device's node; where that is not permitted, a file."""
    try:
        os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
    except PermissionError:
        path.touch()
    path.chmod(mode)
