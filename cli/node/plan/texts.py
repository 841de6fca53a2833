"""The files that an installation adds to a host beside the units: by path, each with its reason in its first line."""

import re
from collections.abc import Iterator

from cli.node.errors import NodeError
from cli.node.plan.states import Host

UDEV = "/etc/udev/rules.d/79-mooring-vfs.rules"
MODULES = "/etc/modules-load.d/mooring.conf"
NETWORK_MANAGER = "/etc/NetworkManager/conf.d/20-mooring.conf"
NETWORKD = "/etc/systemd/network/00-mooring-vfs.network"
LINK = "/etc/systemd/network/00-mooring-vfs.link"
# A file in /etc takes the place of the one with its name in /usr/lib (udev(7)); rdma-core renames by this one.
RDMA_RULES = "60-rdma-persistent-naming.rules"
RDMA = f"/etc/udev/rules.d/{RDMA_RULES}"
RDMA_PACKAGED = tuple(f"{folder}/udev/rules.d/{RDMA_RULES}" for folder in ("/usr/lib", "/lib"))

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
# The first .link file that matches counts, the others are ignored (systemd.link(5)): no policy of theirs, no renaming.
_LINK = """\
# VFs keep the names and addresses that the kernel gives them: 79-mooring-vfs.rules sets the property.
[Match]
Property=MOORING_VF=1

[Link]
NamePolicy=keep
MACAddressPolicy=none
"""
_RDMA_HEAD = f"# Mooring's VFs keep the names of their RDMA devices; the rest is rdma-core's {RDMA_RULES}.\n"
_NO_VF = 'TEST!="device/physfn"'
_RDMA_DEVICES = re.compile(r'SUBSYSTEM=="infiniband", *')
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


def vf_names(host: Host) -> Iterator[tuple[str, str]]:
    """Yield path and text of what keeps udev from renaming VFs' netdevs and RDMA devices.

    rdma-core renames by a rule that runs its program rdma_rename; an administrator's rules in /etc may replace it
    ("Stable names" in rdma-core's Documentation/udev.md). So the packaged rules are repeated for all but VFs. Raise
    NodeError if an administrator has replaced them already.
    """
    yield LINK, _LINK
    # Its folder may be made for the first one; a host with this folder is taken for one of systemd-networkd.
    yield NETWORKD, _NETWORKD
    packaged = next((text for path in RDMA_PACKAGED if (text := host.text(path)) is not None), None)
    if packaged is None:
        return
    there = host.text(RDMA)
    if there is not None and not there.startswith(_RDMA_HEAD):
        raise NodeError(f'{RDMA!r} is not ours: add TEST!="device/physfn" to its rules, or --vf-names udev')
    rules = (line for line in packaged.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    spared = (_RDMA_DEVICES.sub(rf"\g<0>{_NO_VF}, ", rule) for rule in rules)
    yield RDMA, _RDMA_HEAD + "".join(f"{rule}\n" for rule in spared)


def memlock(unit: str) -> tuple[str, str]:
    """Return path and text of the drop-in that lifts the limit of locked memory for a runtime's containers."""
    return f"/etc/systemd/system/{unit}.d/20-mooring.conf", _MEMLOCK
