"""A VF that its PF's driver resets: its RDMA device vanishes, and a moment later another one is there under its name.

Its netdev stays. Nothing waits for it: the driver of the VF does this in its own time, after the setting that caused it
has been acknowledged. Sources: iavf_reset_task (Intel's iavf), hclgevf_reset_rebuild (hns3).
"""

import shutil
import threading
import time
from pathlib import Path

from devcluster.hosts.netdevs import link

_CLASSES = ("infiniband", "infiniband_verbs", "infiniband_mad")
_GONE_AFTER_S, _BACK_AFTER_S = 0.02, 0.2
# A driver's resets follow one another: the next begins with all that the one before has made.
_ONE_STEP = threading.Lock()


def begin(sys: Path, pci: str) -> None:
    """Reset a VF of the tree at ``sys``, in threads of their own."""
    folder = (sys / "bus/pci/devices" / pci).resolve()
    if folder.is_dir():
        threading.Timer(_GONE_AFTER_S, _remove, (sys, folder)).start()


def _remove(sys: Path, folder: Path) -> None:
    with _ONE_STEP:
        _remove_classes(sys, folder)
    threading.Timer(_BACK_AFTER_S, _make_again, (sys, folder)).start()


def _remove_classes(sys: Path, folder: Path) -> None:
    for name in _CLASSES:
        if (folder / name).is_dir():
            for device in (folder / name).iterdir():
                (sys / "class" / name / device.name).unlink(missing_ok=True)
            (folder / name).rename(folder / f".reset-{name}")


def _make_again(sys: Path, folder: Path) -> None:
    """Copy what was there: a device that is made again is another one, with another inode."""
    with _ONE_STEP:
        _make_classes_again(sys, folder)


def _make_classes_again(sys: Path, folder: Path) -> None:
    for name in _CLASSES:
        hidden = folder / f".reset-{name}"
        if hidden.is_dir() and not (folder / name).exists():
            for device in hidden.iterdir():
                link(sys / "class" / name / device.name, folder / name / device.name)
            shutil.copytree(hidden, folder / f".made-{name}", symlinks=True)
            (folder / f".made-{name}").rename(folder / name)
            # Not removed: a file system gives the inode number of a removed folder to the next one, and sysfs does not.
            hidden.rename(folder / f".past-{name}-{time.monotonic_ns()}")
