"""Which devlink requests are sent, and for which tree; the answers are the lab kernel's (tests/lab/test_devlink.py)."""

import errno
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from advertiser.host import devlink
from advertiser.inventory.facts import EswitchMode
from mooring.nic.netlink_codec import pack_attributes, read_attributes, text

NOWHERE = "ffff:ff:1f.7"
PF = "0000:3b:00.0"
FAMILY, GET_FAMILY, PORT_GET, ESWITCH_GET = 21, 3, 5, 29
FLAVOURS = {"physical": 0, "pcipf": 3, "pcivf": 4, "virtual": 5, "pcisf": 7}


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def answer(command: int, attributes: Mapping[int, bytes], kind: int = FAMILY) -> bytes:
    return message(kind, struct.pack("=BBH", command, 1, 0) + pack_attributes(attributes.items()))


def port(bus: str, device: str, flavour: str) -> bytes:
    handle = {1: f"{bus}\0".encode(), 2: f"{device}\0".encode(), 3: bytes(4)}
    return answer(7, handle | {77: struct.pack("=H", FLAVOURS[flavour])})


class Kernel:
    """Answers as genl_ctrl and devlink do: a request by its answer and an acknowledgement, a dump up to its end."""

    def __init__(self, eswitch: int | Mapping[int, bytes] = 0, ports: tuple[bytes, ...] = ()) -> None:
        self.eswitch = eswitch
        self.ports = ports
        self.asked: list[list[str]] = []
        self._waiting: list[bytes] = []

    def send(self, data: bytes, /) -> int:
        family, command = struct.unpack_from("=4xH10xB", data)
        attributes = [text(value) for _, value in read_attributes(data[20:])]
        self._waiting = [message(2, bytes(20))]
        if command == GET_FAMILY:
            assert (family, attributes) == (16, ["devlink"])
            self._waiting.insert(0, answer(1, {2: b"devlink\0", 1: struct.pack("=H", FAMILY)}, 16))
        elif command == PORT_GET:
            self._waiting = [*self.ports, message(3, bytes(4))]
        else:
            assert (family, command) == (FAMILY, ESWITCH_GET)
            self.asked.append(attributes)
            self._tell_mode()
        return len(data)

    def _tell_mode(self) -> None:
        if isinstance(self.eswitch, int):
            self._waiting = [message(2, struct.pack("=i16x", -self.eswitch))]
        else:
            self._waiting.insert(0, answer(29, self.eswitch))

    def recv(self, most: int, /) -> bytes:
        return self._waiting.pop(0)[:most]


@pytest.mark.parametrize(
    ("eswitch", "mode"),
    [
        ({25: struct.pack("=H", 0)}, "legacy"),
        ({25: struct.pack("=H", 1)}, "switchdev"),
        # DEVLINK_ESWITCH_MODE_SWITCHDEV_INACTIVE, of kernels newer than 6.12.
        ({25: struct.pack("=H", 2)}, "switchdev"),
        # ice_eswitch_mode_get without CONFIG_ICE_SWITCHDEV leaves it unset.
        ({25: struct.pack("=H", 0xDEAD)}, None),
        # A driver without eswitch_mode_get: devlink_nl_eswitch_fill leaves the attribute out.
        ({}, "legacy"),
        (errno.EOPNOTSUPP, "legacy"),
        (errno.EPERM, None),
        (errno.ENODEV, None),
    ],
)
def test_the_mode_is_what_devlink_answers(eswitch: int | Mapping[int, bytes], mode: EswitchMode | None) -> None:
    """Not supported means legacy, not permitted means unknown."""
    kernel = Kernel(eswitch)
    assert devlink.Session(kernel).mode("pci", PF) == mode
    assert kernel.asked == [["pci", PF]]


@pytest.mark.parametrize(
    ("flavour", "switched"),
    [("pcivf", True), ("pcisf", True), ("pcipf", True), ("physical", False), ("virtual", False)],
)
def test_a_port_on_the_inner_side_means_switchdev(flavour: str, switched: bool) -> None:
    """The port must be on this bus. mlx5's own port (physical) and a VF's (virtual) exist in legacy mode too."""
    kernel = Kernel(ports=(port("netdevsim", NOWHERE, "pcivf"), port("pci", PF, "physical"), port("pci", PF, flavour)))
    assert devlink.Session(kernel).switched("pci") == ({PF} if switched else set())


def test_a_device_that_devlink_does_not_know_has_no_mode() -> None:
    """Without devlink in the kernel no device has a mode: neither case is an error."""
    assert devlink.eswitch_modes([NOWHERE]) == {}


def test_devlink_is_asked_about_this_machines_own_tree_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured host's PF has the address of another device here, which may be in the other mode."""

    def answer(devices: Iterable[str], bus: str = "pci") -> dict[str, EswitchMode]:
        return dict.fromkeys(devices, "switchdev")

    monkeypatch.setattr(devlink, "eswitch_modes", answer)
    assert devlink.read_modes(tmp_path, [NOWHERE]) == {}
    assert devlink.read_modes(tmp_path / "gone", [NOWHERE]) == {}
    assert devlink.read_modes(Path("/sys"), [NOWHERE]) == {NOWHERE: "switchdev"}
