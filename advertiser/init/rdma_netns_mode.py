"""The mode of the RDMA stack: its devices shared by all network namespaces, or exclusively in one each.

One message of NETLINK_RDMA sets the mode. The kernel refuses with EBUSY once a network namespace exists beside the
first (rdma_compatdev_set in drivers/infiniband/core).
"""

import errno
from pathlib import Path

from advertiser.host.sysfs import NETNS_MODE
from advertiser.inventory.offer import RdmaNetns
from mooring.nic import rdma_netlink

_MODES: dict[RdmaNetns, int] = {"exclusive": 0, "shared": 1}


class RebootNeededError(RuntimeError):
    """A mode that needs a reboot: what was written for it, and why."""


def read_mode(sysfs: Path) -> RdmaNetns | None:
    """Return the current mode; None if the RDMA core is not loaded."""
    try:
        return "shared" if (sysfs / NETNS_MODE).read_text().strip() == "Y" else "exclusive"
    except FileNotFoundError:
        return None


def ensure_mode(wanted: RdmaNetns, sysfs: Path, options: Path) -> None:
    """Set the stack's mode; raise RebootNeededError if that takes a reboot, OSError if it is refused.

    ``options`` is the modprobe.d file that sets the mode at the next boot.
    """
    if read_mode(sysfs) == wanted:
        return
    try:
        rdma_netlink.exchange(rdma_netlink.SYS_SET, {rdma_netlink.SYS_ATTR_NETNS_MODE: bytes((_MODES[wanted],))})
    except OSError as refused:
        if refused.errno != errno.EBUSY:
            raise
        options.parent.mkdir(parents=True, exist_ok=True)
        options.write_text(f"options ib_core netns_mode={_MODES[wanted]}\n")
        why = "network namespaces exist already, so the kernel keeps the RDMA stack's mode until it restarts"
        raise RebootNeededError(f"{why}: {str(options)!r} now says {wanted}; reboot this node") from refused
