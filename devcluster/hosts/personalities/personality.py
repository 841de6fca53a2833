"""What a PF's driver does with the settings of its VFs: one class a driver, one method an operation of the kernel.

A method is called where the kernel calls the driver: ndo_set_vf_* by do_setvfinfo and ndo_get_vf_config by
rtnl_fill_vfinfo (net/core/rtnetlink.c), sriov_configure by sriov_numvfs_store (drivers/pci/iov.c). It changes the `Vf`
that the driver remembers, or raises OSError with the driver's errno. The events say what is forgotten or latched, and
when: a VF's driver binds, the VF is reset, the PF is closed or reloaded.

Each class stands in a module of its own, and each of its answers cites the function of Linux 6.12 that gives it. An
operation that a class does not define is one that its driver lacks: the kernel answers EOPNOTSUPP.
"""

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from mooring.names import LinkType
from mooring.nic.settings import LinkState, VfSettings

NO_MAC = "00:00:00:00:00:00"
# VLAN_N_VID in include/linux/if_vlan.h: a VLAN id is below it.
VLANS = 4096
PRIORITIES = 8


@dataclass(slots=True)
class Vf:
    """What a driver remembers of one VF; rates in Mb/s.

    ``own_mac`` is the address that the VF's own driver chose. ``unchecked``: the NIC does not check source MACs of it,
    whatever ``spoofchk`` says. ``kept`` is what only one personality knows of.
    """

    number: int
    own_mac: str = NO_MAC
    mac: str = NO_MAC
    vlan: int = 0
    qos: int = 0
    min_tx_rate: int = 0
    max_tx_rate: int = 0
    spoofchk: bool = False
    trust: bool = False
    link_state: LinkState = "auto"
    guid: str | None = None
    unchecked: bool = False
    kept: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Pf:
    """A PF: its VFs, line rate in Mb/s, MTU, whether its netdev is up, and whether its driver answers at all.

    ``reset`` collects the VFs that an operation resets: their drivers remove their RDMA devices and make them again.
    ``others`` are the VFs beside the one whose setting an operation writes; it may change them. ``total`` is the
    device's sriov_totalvfs. ``firmware_refuses``: how many more of the commands that put spoof check in force the
    firmware refuses, or of ``refused_command`` if there is one; what the driver has changed before it asks stays
    changed.
    """

    vfs: int
    mbps: int = 100_000
    mtu: int = 1500
    up: bool = True
    present: bool = True
    firmware_refuses: int = 0
    refused_command: str = ""
    total: int = 0
    reset: set[int] = field(default_factory=set)
    others: list[Vf] = field(default_factory=list)


class Personality:
    """A driver without any operation for its VFs' settings; every other one is a subclass."""

    name: str
    driver: str
    # The driver of the VFs.
    vf_driver: str
    link: LinkType = "ethernet"
    vendor: str
    device: str
    vf_device: str
    # What its RDMA devices are called before udev renames them; a number follows.
    rdma_prefix: str
    # Whether its VFs have RDMA devices.
    has_rdma: bool = True
    # Whether a PF's netdev shows phys_port_name, and phys_switch_id, in legacy mode.
    has_devlink_port: bool = False
    has_switch_id: bool = False
    # Whether VFs that are made again have the settings of those before them.
    keeps_settings: bool = False
    # Whether a VF without an admin MAC is reported with the address that its own driver chose.
    reports_own_mac: bool = False

    def fresh(self, number: int, own_mac: str = NO_MAC) -> Vf:
        """Return a VF as it is once made, its driver bound."""
        return Vf(number, own_mac)

    def set_vf_mac(self, _pf: Pf, _vf: Vf, mac: str) -> None:
        raise unsupported("mac", mac)

    def set_vf_vlan(self, _pf: Pf, _vf: Vf, vlan: int, qos: int) -> None:
        raise unsupported("vlan", (vlan, qos))

    def set_vf_rate(self, _pf: Pf, _vf: Vf, min_tx_rate: int, max_tx_rate: int) -> None:
        raise unsupported("rate", (min_tx_rate, max_tx_rate))

    def set_vf_spoofchk(self, _pf: Pf, _vf: Vf, *, spoofchk: bool) -> None:
        raise unsupported("spoofchk", spoofchk)

    def set_vf_link_state(self, _pf: Pf, _vf: Vf, link_state: LinkState) -> None:
        raise unsupported("link_state", link_state)

    def set_vf_trust(self, _pf: Pf, _vf: Vf, *, trust: bool) -> None:
        raise unsupported("trust", trust)

    def set_vf_guid(self, _pf: Pf, _vf: Vf, guid: str) -> None:
        raise unsupported("guid", guid)

    def get_vf_config(self, _pf: Pf, vf: Vf) -> VfSettings:
        """Return the kernel's answer about a VF, or raise OSError: the VF is then missing in the kernel's list."""
        return VfSettings(
            min_tx_rate=vf.min_tx_rate,
            max_tx_rate=vf.max_tx_rate,
            mac=vf.mac,
            vlan=vf.vlan,
            qos=vf.qos,
            trust=vf.trust,
            spoofchk=vf.spoofchk,
            link_state=vf.link_state,
            guid=vf.guid,
        )

    def vfs_with_settings(self, pf: Pf) -> int:
        """Return how many VFs take settings: by default those that exist."""
        return pf.vfs

    def sriov_configure(self, pf: Pf, wanted: int) -> int:
        """Make VFs; return how many were made, or raise OSError. The settings of those before are forgotten.

        Their number changes by way of 0 only (sriov_numvfs_store).
        """
        if wanted and pf.vfs:
            raise refusal(errno.EBUSY, "sriov_numvfs", wanted)
        pf.vfs = wanted
        return wanted

    def make(self, pf: Pf, vf: Vf) -> None:
        """Take in that a VF was made, which may have settings already."""

    def node_guid(self, vf: Vf, netdev_mac: str) -> str:
        """Return the node GUID that a VF reads while its driver is bound, as node_guid_show writes it.

        By default made from the netdev's MAC, as bnxt_re does (addrconf_addr_eui48 in drivers/infiniband/hw/bnxt_re).
        """
        return guid_of(bytes((int(netdev_mac[:2], 16) ^ 2,)).hex() + netdev_mac[2:])

    def bind(self, pf: Pf, vf: Vf) -> None:
        """Take in that a VF's driver was bound: what the VF reads at probe only, it reads here."""

    def set_up(self, pf: Pf, _vfs: Iterable[Vf], *, up: bool) -> None:
        """Open or close the PF's netdev."""
        pf.up = up

    def reload(self, pf: Pf, vfs: Iterable[Vf]) -> None:
        """Reload the PF's driver or recover its firmware, its VFs staying: forget what the driver does not keep."""


def ask_firmware(pf: Pf, command: str) -> None:
    """Let the firmware refuse a command of the driver's, as often as it is to, unless it is to refuse another one."""
    if pf.firmware_refuses and pf.refused_command in ("", command):
        pf.firmware_refuses -= 1
        raise refusal(errno.EIO, "firmware command", command)


def ask_if_named(pf: Pf, command: str) -> None:
    """Let the firmware refuse a command only if it is the one to be refused."""
    if pf.refused_command:
        ask_firmware(pf, command)


def refusal(code: int, setting: str, value: object) -> OSError:
    """Return the error of a driver that refuses a value."""
    return OSError(code, os.strerror(code), f"{setting} {value!r}")


def unsupported(setting: str, value: object) -> OSError:
    """Return the kernel's error for a driver that has no such operation (do_setvfinfo)."""
    return refusal(errno.EOPNOTSUPP, setting, value)


def guid_of(mac: str) -> str:
    """Return a MAC with ff:fe in its middle, as node_guid_show in drivers/infiniband/core/sysfs.c writes a GUID."""
    digits = mac.replace(":", "")
    whole = f"{digits[:6]}fffe{digits[6:]}"
    return ":".join(whole[start : start + 4] for start in range(0, 16, 4))


def is_multicast(mac: str) -> bool:
    return bool(int(mac[:2], 16) & 1)
