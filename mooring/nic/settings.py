"""The settings of a VF, as a pod requests them, as they are set on the PF, and as they are restored afterwards.

Requests, assignments and ledger entries have the same fields. None means absent: in a request "do not change it", in a
reading "the PF's driver does not report it". Source of names and units: ``IFLA_VF_*`` in the kernel's
include/uapi/linux/if_link.h.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import compress, repeat
from operator import attrgetter, is_not
from typing import Literal

from mooring.parsing import Fields, Value

LinkState = Literal["auto", "enable", "disable"]

# IFLA_VF_RATE carries Mb/s in 32 bits.
MAX_RATE_MBPS = 0xFFFF_FFFF
MAX_VLAN = 4094
_MLX4_NO_VLAN = 4095
MAX_QOS = 7
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}", re.ASCII)
_GUID = re.compile(r"(?:[0-9A-Fa-f]{2}:){7}[0-9A-Fa-f]{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class VfSettings:
    """Settings of one VF; rates are in Mb/s of transmitted traffic, max_tx_rate 0 is "no limit" as in the kernel."""

    min_tx_rate: int | None = None
    max_tx_rate: int | None = None
    mac: str | None = None
    vlan: int | None = None
    qos: int | None = None
    trust: bool | None = None
    spoofchk: bool | None = None
    link_state: LinkState | None = None
    guid: str | None = None

    def to_fields(self) -> dict[str, object]:
        """Return the settings that are not None, as JSON fields."""
        values = _values(self)
        return dict(compress(zip(SETTING_NAMES, values, strict=True), map(is_not, values, repeat(None))))


SETTING_NAMES = tuple(field.name for field in fields(VfSettings))
# One call for all fields, without a loop in Python: the scheduler writes the settings of every VF of every pod.
_values: Callable[[VfSettings], tuple[object, ...]] = attrgetter(*SETTING_NAMES)


def read_settings(document: Fields) -> VfSettings:
    """Read requested settings, and check the rules that involve two of them."""
    settings = _read(document, mac)
    # The kernel rejects max != 0 && max < min (rtnetlink, do_setvfinfo); reject it already before placement.
    if settings.max_tx_rate and (settings.min_tx_rate or 0) > settings.max_tx_rate:
        low = document.required("min_tx_rate")
        low.fail(f"{low.raw} exceeds max_tx_rate {settings.max_tx_rate}")
    if settings.qos and not settings.vlan:
        document.required("qos").fail("qos without a vlan: the priority travels in the VLAN tag")
    return settings


def read_found_settings(document: Fields) -> VfSettings:
    """Read settings that were found on a VF: any combination that the kernel allows, also the MAC 00:… (not set)."""
    return _read(document, lambda value: value.match(_MAC, "an Ethernet address"))


def _read(document: Fields, read_mac: Callable[[Value], str]) -> VfSettings:
    return VfSettings(
        min_tx_rate=document.optional("min_tx_rate", rate),
        max_tx_rate=document.optional("max_tx_rate", rate),
        mac=document.optional("mac", read_mac),
        vlan=document.optional("vlan", lambda value: value.integer(0, MAX_VLAN)),
        qos=document.optional("qos", lambda value: value.integer(0, MAX_QOS)),
        trust=document.optional("trust", Value.boolean),
        spoofchk=document.optional("spoofchk", Value.boolean),
        link_state=document.optional("link_state", link_state),
        guid=document.optional("guid", guid),
    )


def reported_vlan(vlan: int | None) -> int | None:
    """Return the VLAN that a PF's driver reports, 0 for none.

    mlx4 reports the reserved id 4095 for none (MLX4_VGT in mlx4_get_vf_config, Linux 6.12), which no request can have.
    """
    return 0 if vlan == _MLX4_NO_VLAN else vlan


def rate(value: Value) -> int:
    return value.integer(0, MAX_RATE_MBPS)


def link_state(value: Value) -> LinkState:
    states: tuple[LinkState, LinkState, LinkState] = ("auto", "enable", "disable")
    return value.choice(*states)


def mac(value: Value) -> str:
    """Read a unicast Ethernet address; return it in lower case."""
    text = value.match(_MAC, "an Ethernet address such as '02:00:00:00:00:01'").lower()
    if int(text[:2], 16) & 1 or text == "00:00:00:00:00:00":
        value.fail(f"{text!r} is not a unicast address")
    return text


def guid(value: Value) -> str:
    """Read an InfiniBand GUID (8 bytes); return it in lower case."""
    text = value.match(_GUID, "a GUID such as '02:00:00:00:00:00:00:01'").lower()
    if text in ("00:00:00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff:ff:ff"):
        value.fail(f"{text!r} is reserved")
    return text
