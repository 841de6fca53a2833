"""Read and set the mode of the RDMA stack: all network namespaces share its devices, or each device is in one.

One message of NETLINK_RDMA sets the mode. The kernel returns EBUSY if a second network namespace exists
(rdma_compatdev_set in drivers/infiniband/core).
"""

import errno
import time
from datetime import UTC, datetime
from pathlib import Path

from advertiser.host.sysfs import NETNS_MODE
from advertiser.inventory.offer import RdmaNetns
from mooring.files import read_file
from mooring.nic import rdma_netlink

_MODES: dict[RdmaNetns, int] = {"exclusive": 0, "shared": 1}

_REBUILD = "rebuild the initramfs (`dracut -f`, `update-initramfs -u`)"


class RebootNeededError(RuntimeError):
    """The mode changes only after a reboot; the message says why, and which file sets it then."""


def read_mode(sysfs: Path) -> RdmaNetns | None:
    """Return the current mode; None if the RDMA core is not loaded."""
    try:
        return "shared" if (sysfs / NETNS_MODE).read_text().strip() == "Y" else "exclusive"
    except FileNotFoundError:
        return None


def ensure_mode(wanted: RdmaNetns, sysfs: Path, options: Path) -> None:
    """Set the stack's mode; raise RebootNeededError if that needs a reboot, OSError if the kernel rejects it.

    ``options`` is the modprobe.d file that sets the mode at the next boot.
    """
    if read_mode(sysfs) == wanted:
        return
    try:
        rdma_netlink.exchange(rdma_netlink.SYS_SET, {rdma_netlink.SYS_ATTR_NETNS_MODE: bytes((_MODES[wanted],))})
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        boot_time = datetime.now(UTC).timestamp() - time.clock_gettime(time.CLOCK_BOOTTIME)
        raise RebootNeededError(leave_for_next_boot(wanted, options, boot_time)) from error


def leave_for_next_boot(wanted: RdmaNetns, options: Path, boot_time: float) -> str:
    """Write the module option and return what the operator has to do; raise OSError.

    If the file has had the option since before ``boot_time`` (UNIX time), this boot has loaded ib_core without it.
    rdma-core's dracut module (50rdma) loads ib_core in the initramfs, and dracut and initramfs-tools copy modprobe.d
    when they build the initramfs: modules that it loads get their options from the copy. The kernel command line counts
    in both places (modprobe reads /proc/cmdline: Documentation/admin-guide/kernel-parameters.rst).
    """
    option = f"options ib_core netns_mode={_MODES[wanted]}"
    if option not in (read_file(options) or "").splitlines():
        options.parent.mkdir(parents=True, exist_ok=True)
        options.write_text(f"{option}\n")
    elif options.stat().st_mtime < boot_time:
        return (
            f"{str(options)!r} set mode {wanted} before this boot, but ib_core was loaded without it: {_REBUILD}, or "
            f"boot with ib_core.netns_mode={_MODES[wanted]} on the kernel command line"
        )
    why = "other network namespaces exist, so the kernel can change the RDMA mode only after a reboot"
    return (
        f"{why}: {str(options)!r} now sets mode {wanted}; if the initramfs loads ib_core, {_REBUILD}; reboot this node"
    )
