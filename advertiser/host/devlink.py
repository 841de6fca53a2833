"""Read the mode of a PF's embedded switch through devlink, by generic netlink.

A netdev's ``phys_switch_id`` does not show the mode: mlx5 has one in both modes since Linux 5.13
(mlx5e_devlink_port_register), and so do ice (ice_devlink_set_switch_id) and bnxt_en. ESWITCH_GET returns the mode to a
process with CAP_NET_ADMIN in the initial user namespace (GENL_ADMIN_PERM in net/devlink/netlink_gen.c). The list of
ports needs no privilege; only in switchdev mode it has ports of VFs, SFs or other PFs. Without VFs there are no such
ports, so their absence proves nothing.

Commands and attributes are from include/uapi/linux/devlink.h, the family's id from include/uapi/linux/genetlink.h.
pyroute2 supports devlink, too, but on a kernel without devlink it logs at every request and leaves its event loop open.
"""

import errno
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from advertiser.inventory.facts import EswitchMode
from mooring.nic.netlink_codec import ACK, DUMP, REQUEST, number, pack_attributes, pack_message, read_answer, text

# Returns the known modes of the PFs at these PCI addresses.
ReadModes = Callable[[Path, Iterable[str]], Mapping[str, EswitchMode]]

_GENERIC = 16
_CONTROL, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 0x10, 3, 1, 2
_PORT_GET, _ESWITCH_GET = 5, 29
_BUS_NAME, _DEV_NAME, _ESWITCH_MODE, _PORT_FLAVOUR = 1, 2, 25, 77
# DEVLINK_ESWITCH_MODE_*; the third, SWITCHDEV_INACTIVE, was added in November 2025.
_MODES: dict[int, EswitchMode] = {0: "legacy", 1: "switchdev", 2: "switchdev"}
# DEVLINK_PORT_FLAVOUR_PCI_PF, _PCI_VF, _PCI_SF: the ports on the switch's inner side.
_INNER = frozenset({3, 4, 7})
_GENERIC_HEADER = struct.Struct("=BBH")
_MOST_BYTES = 1 << 16
_SYSFS = Path("/sys")


def read_modes(sysfs: Path, addresses: Iterable[str]) -> Mapping[str, EswitchMode]:
    """Return the modes of this machine's PFs; empty for a captured tree, whose addresses belong to another machine."""
    try:
        own = sysfs.stat().st_dev == _SYSFS.stat().st_dev
    except OSError:
        own = False
    return eswitch_modes(addresses) if own else {}


def eswitch_modes(devices: Iterable[str], bus: str = "pci") -> dict[str, EswitchMode]:
    """Return the modes that devlink reports; never raise, whatever the kernel lacks or rejects."""
    modes: dict[str, EswitchMode] = {}
    unknown: list[str] = []
    try:
        with _session() as session:
            for device in devices:
                mode = session.mode(bus, device)
                if mode is None:
                    unknown.append(device)
                else:
                    modes[device] = mode
            switched = session.switched(bus) if unknown else frozenset()
    except OSError:
        return modes
    return modes | {device: "switchdev" for device in unknown if device in switched}


class Datagrams(Protocol):
    """The part of a netlink socket that a session uses: send one datagram, receive one."""

    def send(self, data: bytes, /) -> int: ...

    def recv(self, most: int, /) -> bytes: ...


class Session:
    """A socket of generic netlink, and the id that the kernel assigned to devlink's family."""

    def __init__(self, netlink: Datagrams) -> None:
        """Request the family's id; raise OSError, with ENOENT from a kernel without devlink."""
        self._netlink = netlink
        (answer,) = self._exchange(_CONTROL, _GET_FAMILY, {_FAMILY_NAME: b"devlink\0"})
        self._family = number(answer[_FAMILY_ID])

    def mode(self, bus: str, device: str) -> EswitchMode | None:
        """Return one device's mode; None if it has no devlink handle or the kernel does not report it."""
        handle = {_BUS_NAME: f"{bus}\0".encode(), _DEV_NAME: f"{device}\0".encode()}
        try:
            answers = self._exchange(self._family, _ESWITCH_GET, handle)
        except OSError as error:
            # A device without a switch (mlx5_eswitch_check: InfiniBand, a PF that another host manages) has no
            # switchdev mode, so it counts as legacy. EPERM proves nothing: the kernel returns it to a process without
            # the privilege, and some drivers return it for such a PF.
            return "legacy" if error.errno == errno.EOPNOTSUPP else None
        # Without the attribute the driver has no modes. An unknown number is meaningless: in a kernel without
        # CONFIG_ICE_SWITCHDEV, ice_eswitch_mode_get sets no mode, and the reply is uninitialised memory.
        mode = next((number(answer[_ESWITCH_MODE]) for answer in answers if _ESWITCH_MODE in answer), 0)
        return _MODES.get(mode)

    def switched(self, bus: str) -> frozenset[str]:
        """Return the devices of a bus that have a port on the switch's inner side: they are in switchdev mode."""
        ports = self._exchange(self._family, _PORT_GET, {}, dump=True)
        inner = (port for port in ports if number(port.get(_PORT_FLAVOUR, b"")) in _INNER)
        return frozenset(text(port[_DEV_NAME]) for port in inner if text(port.get(_BUS_NAME, b"")) == bus)

    def _exchange(
        self, family: int, command: int, attributes: Mapping[int, bytes], *, dump: bool = False
    ) -> list[dict[int, bytes]]:
        """Send a command and return the attributes of each answer; raise OSError with the kernel's errno."""
        body = _GENERIC_HEADER.pack(command, 1, 0) + pack_attributes(attributes.items())
        self._netlink.send(pack_message(family, REQUEST | (DUMP if dump else ACK), body))
        answers: list[dict[int, bytes]] = []
        while True:
            messages, ended = read_answer(self._netlink.recv(_MOST_BYTES), _GENERIC_HEADER.size)
            answers += (dict(message) for message in messages)
            if ended:
                return answers


@contextmanager
def _session() -> Iterator[Session]:
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    with socket.socket(socket.AF_NETLINK, kind, _GENERIC) as netlink:
        netlink.bind((0, 0))
        yield Session(netlink)
