"""Exchange messages with the RDMA core's client NLDEV over NETLINK_RDMA, which pyroute2 does not support.

Numbers are from include/uapi/rdma/rdma_netlink.h. The network namespace of the calling thread determines the visible
devices. On a kernel without the RDMA core, opening the socket fails with EPROTONOSUPPORT.
"""

import errno
import socket
from collections.abc import Mapping, Sequence

from mooring.nic.netlink_codec import ACK, DUMP, REQUEST, Attribute, pack_attributes, pack_message, read_answer, text

GET, SET, SYS_GET, SYS_SET, RES_GET, RES_QP_GET, RES_CM_ID_GET, RES_CTX_GET = 1, 2, 6, 7, 9, 10, 11, 22
GET_CHARDEV, CHARDEV_TYPE, CHARDEV = 15, 69, 72
PORT_GET, PORT_INDEX, PORT_STATE = 5, 3, 12
DEV_INDEX, DEV_NAME = 1, 2
RES_SUMMARY, RES_SUMMARY_ENTRY, RES_SUMMARY_ENTRY_NAME, RES_SUMMARY_ENTRY_CURR = 15, 16, 17, 18
RES_QP, RES_QP_ENTRY, RES_PID, RES_CM_ID, RES_CM_ID_ENTRY, RES_CTX, RES_CTX_ENTRY = 19, 20, 28, 31, 32, 86, 87
SYS_ATTR_NETNS_MODE, NET_NS_FD, PARENT_NAME = 66, 68, 100

_NETLINK_RDMA = 20
_NLDEV = 5 << 10
_MOST_BYTES = 1 << 16


def exchange(command: int, attributes: Mapping[int, bytes], *, dump: bool = False) -> list[Sequence[Attribute]]:
    """Send a command and return the attributes of each message of its answer; raise OSError with the kernel's errno."""
    answer: list[Sequence[Attribute]] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_RDMA) as netlink:
        netlink.bind((0, 0))
        netlink.send(request(command, attributes, dump=dump))
        while True:
            messages, is_complete = read_answer(netlink.recv(_MOST_BYTES))
            answer += messages
            if is_complete:
                return answer


def request(command: int, attributes: Mapping[int, bytes], *, dump: bool = False) -> bytes:
    """Return the bytes of a request, which asks for an acknowledgement unless it is a dump."""
    return pack_message(_NLDEV | command, REQUEST | (DUMP if dump else ACK), pack_attributes(attributes.items()))


def sub_devices() -> frozenset[str]:
    """Return the names of this namespace's RDMA devices that were made on another one; raise OSError.

    A kernel before 6.11 makes none, and reports no parents.
    """
    try:
        return sub_devices_in(exchange(GET, {}, dump=True))
    except OSError as error:
        if error.errno == errno.EPROTONOSUPPORT:
            return frozenset()
        raise


def sub_devices_in(answer: Sequence[Sequence[Attribute]]) -> frozenset[str]:
    """Return the names of those devices of an answer that have a parent."""
    devices = map(dict, answer)
    return frozenset(text(device[DEV_NAME]) for device in devices if PARENT_NAME in device)
