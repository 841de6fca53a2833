"""Determine a PF's port: its main netdev, link type, rate, whether it is up, and why its VFs are unusable."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from advertiser.inventory.facts import EswitchMode, Netdev, PciFunction, RdmaDevice, RdmaPort, Text
from mooring.names import LinkType
from mooring.nic.settings import MAX_RATE_MBPS

# ARPHRD_ETHER and ARPHRD_INFINIBAND in include/uapi/linux/if_arp.h.
_LINK_BY_TYPE: dict[str, LinkType] = {"1": "ethernet", "32": "infiniband"}
_LINK_BY_LAYER: dict[str, LinkType] = {"Ethernet": "ethernet", "InfiniBand": "infiniband"}
# The kernel reports an unknown speed as -1, old kernels as 4294967295.
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
# rate_show in drivers/infiniband/core/sysfs.c: "2.5 Gb/sec (1X SDR)".
_RATE = re.compile(r"([0-9]{1,6})(?:\.([0-9]))? Gb/sec", re.ASCII)
# __devlink_port_phys_port_name_get in net/devlink/port.c, bnxt_vf_rep_get_phys_port_name: the switch's name for the
# port of a VF, a subfunction or a PF (the host's PF, on a BlueField's ARM side). A PF's own port is p0.
_REPRESENTOR = re.compile(r"(?:c[0-9]+)?pf[0-9]+(?:[vs]f[0-9]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Port:
    """The port of a PF: link type, whether traffic can pass, and line rate in Mb/s (0: unknown)."""

    link: LinkType
    up: bool
    mbps: int


def number(text: Text, most: int) -> int | None:
    """Read a decimal number from 0 to ``most``; None for anything else."""
    if text is None or _NUMBER.fullmatch(text) is None or int(text) > most:
        return None
    return int(text)


def main_netdev(netdevs: Sequence[Netdev]) -> Netdev | None:
    """Return the PF's own netdev among those below its PCI function; None without one.

    Ignores representors (of VFs, SFs or other PFs) and IPoIB children. If a function has two ports, returns the first.
    """
    own_netdevs = [netdev for netdev in netdevs if not (netdev.child or is_representor(netdev))]
    return min(own_netdevs, key=lambda netdev: (number(netdev.dev_port, 255) or 0, netdev.name), default=None)


def is_representor(netdev: Netdev) -> bool:
    return netdev.phys_port_name is not None and _REPRESENTOR.fullmatch(netdev.phys_port_name) is not None


def read_port(netdev: Netdev | None, rdma: Sequence[RdmaDevice]) -> Port | None:
    """Return a PF's port, from its netdev and its first RDMA device; None if the link type is not supported.

    Only InfiniBand works without a netdev, because RoCE uses the netdev's addresses.
    """
    first = next((port for device in rdma[:1] for port in device.ports), RdmaPort())
    if netdev is None:
        up = first.state is not None and first.state.startswith("4:")
        rate = _text_rate_mbps(first.rate) if up else 0
        return Port("infiniband", up, rate) if _LINK_BY_LAYER.get(first.link_layer or "") == "infiniband" else None
    link = _LINK_BY_TYPE.get(netdev.type or "") or _LINK_BY_LAYER.get(first.link_layer or "")
    if link is None:
        return None
    up = _is_up(netdev, link, first)
    return Port(link, up, _rate_mbps(netdev, link, first, up=up))


def _is_up(netdev: Netdev, link: LinkType, port: RdmaPort) -> bool:
    # On InfiniBand RDMA also works while the IPoIB netdev is down, so the port's state decides.
    if link == "infiniband" and port.state is not None:
        return port.state.startswith("4:")
    # Drivers that do not set operstate leave it at "unknown" (RFC 2863 in Documentation/networking/operstates.rst).
    return netdev.operstate == "up" or (netdev.operstate in (None, "unknown") and netdev.carrier == "1")


def _rate_mbps(netdev: Netdev, link: LinkType, port: RdmaPort, *, up: bool) -> int:
    by_netdev = number(netdev.speed, MAX_RATE_MBPS) or 0
    # The rate of an RDMA port that is down is meaningless.
    by_port = _text_rate_mbps(port.rate) if up else 0
    return by_port or by_netdev if link == "infiniband" else by_netdev or by_port


def is_in_switchdev(function: PciFunction, mode: EswitchMode | None) -> bool:
    """Return whether a PF is in switchdev mode, by devlink or, without it, by a representor below its PCI function.

    Representors in other network namespaces are not visible here; devlink's ports are.
    """
    return mode == "switchdev" if mode is not None else any(is_representor(netdev) for netdev in function.netdevs)


def obstacle(function: PciFunction, mode: EswitchMode | None) -> str | None:
    """Return why no VF of a PF can be assigned, None if they can; ``mode`` is from devlink, None if unknown.

    A bond is not an obstacle in legacy mode: it joins only the PFs' netdevs, and each PF still configures its own VFs.
    mlx5 builds no hardware LAG of PFs with VFs in that mode (mlx5_lag_check_prereq in lag.c of Linux 6.12).
    """
    own_netdevs = [other for other in function.netdevs if not (other.child or is_representor(other))]
    if is_in_switchdev(function, mode):
        return "the PF is in switchdev mode"
    # An IPoIB PF has one netdev per port, also with mlx4; dev_port distinguishes the ports of a function.
    if len({other.dev_port for other in own_netdevs}) > 1 or any(len(device.ports) > 1 for device in function.rdma):
        return "two ports on one PCI function"
    return None


def _text_rate_mbps(rate: Text) -> int:
    match = _RATE.match(rate or "")
    return int(match[1]) * 1000 + int(match[2] or 0) * 100 if match else 0
