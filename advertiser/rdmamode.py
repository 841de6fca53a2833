"""The mode of the RDMA stack: its devices shared by all network namespaces, or exclusively in one each.

NETLINK_RDMA from include/uapi/rdma/rdma_netlink.h, which pyroute2 does not speak: one message sets the mode. The kernel
refuses with EBUSY once a network namespace exists beside the first (rdma_compatdev_set in drivers/infiniband/core).
"""

import errno
import os
import socket
import struct
from pathlib import Path

from advertiser.offer import RdmaNetns

_NETLINK_RDMA = 20
_RDMA_NL_NLDEV = 5
_SYS_SET = 7
_ATTR_NETNS_MODE = 66
_NLM_F_REQUEST_ACK = 1 | 4
_MODES: dict[RdmaNetns, int] = {"exclusive": 0, "shared": 1}
_PARAMETER = Path("module/ib_core/parameters/netns_mode")
_HEADER = struct.Struct("=IHHII")


class RebootNeededError(RuntimeError):
    """A mode that only the next boot brings: what was written for it, and why."""


def read_mode(sysfs: Path) -> RdmaNetns | None:
    """Return the present mode; None where the RDMA core is not loaded."""
    try:
        return "shared" if (sysfs / _PARAMETER).read_text().strip() == "Y" else "exclusive"
    except FileNotFoundError:
        return None


def ensure_mode(wanted: RdmaNetns, sysfs: Path, options: Path) -> None:
    """Bring the stack into a mode; raise RebootNeededError where that takes a reboot, OSError where it is refused.

    ``options`` is the modprobe.d file in which the next boot finds the mode.
    """
    if read_mode(sysfs) == wanted:
        return
    try:
        _set_mode(wanted)
    except OSError as refused:
        if refused.errno != errno.EBUSY:
            raise
        options.parent.mkdir(parents=True, exist_ok=True)
        options.write_text(f"options ib_core netns_mode={_MODES[wanted]}\n")
        why = "network namespaces exist already, so the kernel keeps the RDMA stack's mode until it restarts"
        raise RebootNeededError(f"{why}: {str(options)!r} now says {wanted}; reboot this node") from refused


def _set_mode(wanted: RdmaNetns) -> None:
    attribute = struct.pack("=HHBxxx", 5, _ATTR_NETNS_MODE, _MODES[wanted])
    kind = _RDMA_NL_NLDEV << 10 | _SYS_SET
    message = _HEADER.pack(_HEADER.size + len(attribute), kind, _NLM_F_REQUEST_ACK, 1, 0) + attribute
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_RDMA) as netlink:
        netlink.bind((0, 0))
        netlink.send(message)
        answer = netlink.recv(4096)
    # struct nlmsgerr: a negative errno, 0 for an acknowledgement.
    (code,) = struct.unpack_from("=i", answer, _HEADER.size)
    if code:
        raise OSError(-code, os.strerror(-code))
