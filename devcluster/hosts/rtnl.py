"""Watch links through RTNETLINK: those of one namespace, and of every namespace that it has a number (nsid) for.

A namespace gets its number in ours when one of our veths moves there. NETLINK_LISTEN_ALL_NSID then brings its events
here without our opening it: nothing pins it. The number stands beside each message as ancillary data, which pyroute2
does not hand out; hence framing of our own, for links only. Source: net/core/rtnetlink.c (rtnl_fill_ifinfo),
net/netlink/af_netlink.c (do_one_broadcast), include/uapi/linux/{netlink,rtnetlink,if_link}.h.
"""

import errno
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pyroute2 import netns as namespaces

from mooring.nic.netlink_codec import (
    DUMP,
    LINK_HEADER,
    REQUEST,
    pack_attribute,
    pack_message,
    read_attributes,
    read_messages,
    text,
)

T = TypeVar("T")
_SOL_NETLINK, _LISTEN_ALL_NSID, _SO_RCVBUFFORCE = 270, 8, 33
_GROUP_LINK = 1
_NEWLINK, _DELLINK, _GETLINK = 16, 17, 18
_ADDRESS, _IFNAME, _MTU, _LINK, _LINK_NETNSID, _TARGET_NETNSID, _PROP_LIST, _ALT_IFNAME = 1, 3, 4, 5, 37, 46, 52, 53
_UP = 0x1
_INT = struct.Struct("=i")
_BUFFER = 1 << 18
# 240 VFs that move at once are some thousand messages of 1 KiB and more.
_QUEUE = 16 << 20


@dataclass(frozen=True, slots=True)
class Link:
    """A link as its own namespace sees it; ``peer`` is a veth's other end, here or in namespace ``peer_nsid``."""

    index: int
    name: str
    mac: str
    mtu: int
    up: bool
    altnames: tuple[str, ...] = ()
    peer: int | None = None
    peer_nsid: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A link came, changed or went, in the namespace with this number, None being the watched one itself."""

    nsid: int | None
    gone: bool
    link: Link


class Overflow(Exception):  # noqa: N818 - a state of the queue, not an error: whoever reads looks at everything afresh
    """Events were lost because they were not read in time."""


def run_in(netns: Path, work: Callable[[], T]) -> T:
    """Run ``work`` in a namespace, on a thread that ends there; raise what it raises."""

    def enter() -> T:
        namespaces.setns(str(netns))
        return work()

    with ThreadPoolExecutor(max_workers=1) as one_shot:
        return one_shot.submit(enter).result()


class Watch:
    """Two sockets in a namespace: one receives events, one sends requests."""

    def __init__(self, netns: Path) -> None:
        self._events, self._questions = run_in(netns, lambda: (_open(_GROUP_LINK), _open(0)))
        self._events.setblocking(False)
        self._events.setsockopt(_SOL_NETLINK, _LISTEN_ALL_NSID, 1)
        try:
            self._events.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _QUEUE)
        except PermissionError:  # in a user namespace the system's limit holds; after an overflow all is read again
            self._events.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE)

    def fileno(self) -> int:
        return self._events.fileno()

    def close(self) -> None:
        self._events.close()
        self._questions.close()

    def changes(self) -> Iterator[Change]:
        """Yield what happened since the last call; raise Overflow if some of it was lost."""
        while True:
            try:
                data, beside, _flags, _sender = self._events.recvmsg(_BUFFER, socket.CMSG_SPACE(_INT.size))
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    raise Overflow from None
                raise
            nsid = next((_INT.unpack(raw)[0] for level, kind, raw in beside if (level, kind) == _NSID), None)
            for kind, _, body in read_messages(data):
                if kind in (_NEWLINK, _DELLINK) and (link := _read_link(body)) is not None:
                    yield Change(nsid, kind == _DELLINK, link)

    def links(self) -> list[Link]:
        """Return every link of the namespace."""
        found = (_read_link(body) for body in self._ask(REQUEST | DUMP, LINK_HEADER.pack(0, 0, 0, 0, 0)))
        return [link for link in found if link is not None]

    def link(self, index: int, nsid: int | None = None) -> Link | None:
        """Return one link, here or in a numbered namespace; None where link or namespace is gone."""
        target = b"" if nsid is None else pack_attribute(_TARGET_NETNSID, _INT.pack(nsid))
        try:
            for body in self._ask(REQUEST, LINK_HEADER.pack(0, 0, index, 0, 0) + target):
                return _read_link(body)
        except OSError as error:
            if error.errno not in (errno.ENODEV, errno.EINVAL):
                raise
        return None

    def _ask(self, flags: int, payload: bytes) -> Iterator[bytes]:
        self._questions.send(pack_message(_GETLINK, flags, payload))
        while True:
            for message in read_messages(self._questions.recv(_BUFFER)):
                if message.is_last:
                    return
                yield message.body
            if not flags & DUMP:
                return


_NSID = (_SOL_NETLINK, _LISTEN_ALL_NSID)


def _open(groups: int) -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    opened.bind((0, groups))
    return opened


def _read_link(body: bytes) -> Link | None:
    """Read RTM_*LINK; None for a message of another family: a bridge reports its ports in the same group."""
    family, _kind, index, flags, _change = LINK_HEADER.unpack_from(body)
    if family != socket.AF_UNSPEC:
        return None
    found = dict(read_attributes(body[LINK_HEADER.size :]))
    return Link(
        index=index,
        name=text(found[_IFNAME]),
        mac=found.get(_ADDRESS, b"").hex(":"),
        mtu=_INT.unpack(found[_MTU])[0],
        up=bool(flags & _UP),
        altnames=tuple(text(raw) for kind, raw in read_attributes(found.get(_PROP_LIST, b"")) if kind == _ALT_IFNAME),
        peer=_INT.unpack(found[_LINK])[0] if _LINK in found else None,
        peer_nsid=_INT.unpack(found[_LINK_NETNSID])[0] if _LINK_NETNSID in found else None,
    )
