"""What a PF is told about its VFs, through RTNETLINK: the one port that the simulation replaces.

One RTM_SETLINK carries all settings of one VF; the kernel applies them one by one (do_setvfinfo in
net/core/rtnetlink.c) and stops at the first refusal, what came before it being set. Reading asks for the VF list
without statistics: with them the list's 16-bit attribute overflows near 54 VFs and the kernel cuts it short. What it
returns is therefore counted against the number of VFs. A value of -1 means that the driver does not know the setting.
"""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from pyroute2 import IPRoute, NetlinkError

from mooring.settings import LinkState, VfSettings

_FILTER_VF, _SKIP_STATISTICS = 1, 8
_UNSUPPORTED = 0xFFFF_FFFF
_LINK_STATES: tuple[LinkState, LinkState, LinkState] = ("auto", "enable", "disable")


@contextmanager
def rtnetlink() -> Iterator[Any]:
    """Open RTNETLINK in the calling thread's network namespace; a refusal of the kernel's is an OSError."""
    try:
        with IPRoute() as route:
            yield route
    except NetlinkError as refusal:
        raise OSError(refusal.code, os.strerror(refusal.code)) from refusal


class VfPort(Protocol):
    """The settings of VFs as their PF holds them; ``pf`` is its netdev's name, ``vf`` the VF's index."""

    def read(self, pf: str, vf: int) -> VfSettings:
        """Return one VF's settings; raise OSError ENODEV without such a PF, EINVAL without such a VF."""
        ...

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        """Return every VF's settings by index."""
        ...

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        """Set what is not None in one message; raise OSError with the kernel's errno at the first refusal."""
        ...


class RtnetlinkVfPort:
    """The kernel's own; it speaks of the network namespace of the thread that calls."""

    def read(self, pf: str, vf: int) -> VfSettings:
        found = self.read_all(pf).get(vf)
        if found is None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), f"{pf} vf {vf}")
        return found

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        with rtnetlink() as route:
            link = route.link("get", ifname=pf, ext_mask=_FILTER_VF | _SKIP_STATISTICS)[0]
        listed = link.get_attr("IFLA_VFINFO_LIST")
        found = dict(_decode(vf) for vf in listed.get_attrs("IFLA_VF_INFO")) if listed is not None else {}
        if len(found) != (count := link.get_attr("IFLA_NUM_VF") or 0):
            raise OSError(errno.EMSGSIZE, f"the kernel listed {len(found)} of {count} VFs", pf)
        return found

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        with rtnetlink() as route:
            index = route.link("get", ifname=pf)[0]["index"]
            route.link("set", index=index, vf=_encode(vf, self._completed(pf, vf, settings)))

    def _completed(self, pf: str, vf: int, settings: VfSettings) -> VfSettings:
        """Fill the other half of a pair that one attribute carries: it stays as it is."""
        for pair in (("min_tx_rate", "max_tx_rate"), ("vlan", "qos")):
            missing = [name for name in pair if getattr(settings, name) is None]
            if len(missing) == 1:
                settings = replace(settings, **{missing[0]: getattr(self.read(pf, vf), missing[0]) or 0})
        return settings


def _encode(vf: int, settings: VfSettings) -> dict[str, Any]:
    message: dict[str, Any] = {"vf": vf}
    if settings.mac is not None:
        message["mac"] = settings.mac
    if settings.vlan is not None:
        message["vlan"] = {"vlan": settings.vlan, "qos": settings.qos or 0}
    if settings.min_tx_rate is not None:
        message["rate"] = {"min_tx_rate": settings.min_tx_rate, "max_tx_rate": settings.max_tx_rate or 0}
    for name in ("spoofchk", "trust"):
        if (wish := getattr(settings, name)) is not None:
            message[name] = int(wish)
    if settings.link_state is not None:
        message["link_state"] = _LINK_STATES.index(settings.link_state)
    if settings.guid is not None:
        message |= {"ib_node_guid": settings.guid, "ib_port_guid": settings.guid}
    return message


def _decode(info: Any) -> tuple[int, VfSettings]:
    """Read one IFLA_VF_INFO."""

    def value(attribute: str, field: str) -> Any:
        found = info.get_attr(f"IFLA_VF_{attribute}")
        return None if found is None or found[field] == _UNSUPPORTED else found[field]

    state = value("LINK_STATE", "link_state")
    spoofchk, trust = value("SPOOFCHK", "spoofchk"), value("TRUST", "trust")
    settings = VfSettings(
        min_tx_rate=value("RATE", "min_tx_rate"),
        max_tx_rate=value("RATE", "max_tx_rate"),
        mac=value("MAC", "mac"),
        vlan=value("VLAN", "vlan"),
        qos=value("VLAN", "qos"),
        trust=None if trust is None else bool(trust),
        spoofchk=None if spoofchk is None else bool(spoofchk),
        link_state=_LINK_STATES[state] if state is not None and state < len(_LINK_STATES) else None,
        guid=value("IB_PORT_GUID", "ib_port_guid"),
    )
    return info.get_attr("IFLA_VF_MAC")["vf"], settings
