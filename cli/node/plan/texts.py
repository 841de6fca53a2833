"""The files that an installation adds to a host beside the units: by path, each with its reason in its first line."""

from collections.abc import Iterator

from cli.node.plan.states import Host

UDEV = "/etc/udev/rules.d/79-mooring-vfs.rules"
MODULES = "/etc/modules-load.d/mooring.conf"
NETWORK_MANAGER = "/etc/NetworkManager/conf.d/20-mooring.conf"
NETWORKD = "/etc/systemd/network/00-mooring-vfs.network"

# A VF that returns from a pod is a new device to the host: a program that configures it changes what the next pod gets.
_UDEV = """\
# Mooring's VFs come and go with pods: nobody on the host configures them. physfn is what a VF has and nothing else has.
ACTION=="remove", GOTO="mooring_end"
SUBSYSTEM=="net", TEST=="device/physfn", ENV{MOORING_VF}="1", ENV{NM_UNMANAGED}="1"
LABEL="mooring_end"
"""
_MODULES = """\
# /dev/infiniband/rdma_cm and uverbsN, which RDMA pods open.
rdma_ucm
ib_uverbs
"""
# `mo1-3b08` is a VF on its way into a pod or back.
_NETWORK_MANAGER = """\
# NetworkManager leaves VFs alone: by udev's word (79-mooring-vfs.rules), and drivers of VFs by name.
[keyfile]
unmanaged-devices+=driver:iavf;driver:ixgbevf;driver:igbvf;interface-name:mo*-????
"""
_NETWORKD = """\
# systemd-networkd leaves VFs alone.
[Match]
Property=MOORING_VF=1

[Link]
Unmanaged=yes
"""
_MEMLOCK = """\
# Containers inherit this limit: RDMA programs lock the memory that they register.
[Service]
LimitMEMLOCK=infinity
"""


def quiet(host: Host) -> Iterator[tuple[str, str]]:
    """Yield path and text of what keeps the host's own network programs, those that it has, from VFs."""
    yield UDEV, _UDEV
    yield MODULES, _MODULES
    if "/etc/NetworkManager" in host.folders:
        yield NETWORK_MANAGER, _NETWORK_MANAGER
    if "/etc/systemd/network" in host.folders:
        yield NETWORKD, _NETWORKD


def memlock(unit: str) -> tuple[str, str]:
    """Return path and text of the drop-in that lifts the limit of locked memory for a runtime's containers."""
    return f"/etc/systemd/system/{unit}.d/20-mooring.conf", _MEMLOCK
