"""The files that an installation adds to a host beside the units: by path, each with its reason in its first line."""

import re
from collections.abc import Iterable, Iterator

from cli.node.errors import NodeError
from cli.node.plan.states import Host
from mooring.records.node_offer import SET_ASIDE

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
# systemd expands $id in the path of TEST (udev_rule_apply_token_to_event in src/udev/udev-rules.c).
_UDEV = f"""\
# Mooring's VFs come and go with pods: nobody on the host configures them. physfn is what a VF has and nothing else has.
# Exceptions are VFs that the offer sets aside, and those that the host used when this was installed, which stand here.
ACTION=="remove", GOTO="mooring_end"
SUBSYSTEM!="net", GOTO="mooring_end"
SUBSYSTEMS=="pci", TEST=="/var/lib/mooring/{SET_ASIDE}/$id", GOTO="mooring_end"
%sTEST=="device/physfn", ENV{{MOORING_VF}}="1", ENV{{NM_UNMANAGED}}="1"
LABEL="mooring_end"
"""
_EXCEPTED = '# The host used it.\nKERNELS=="{}", GOTO="mooring_end"\n'
_EXCEPTION = re.compile(r'KERNELS=="([0-9a-f:.]+)", GOTO="mooring_end"', re.ASCII)
_MODULES = """\
# /dev/infiniband/rdma_cm and uverbsN, which RDMA pods open.
rdma_ucm
ib_uverbs
"""
# `mo1-3b08` is a VF on its way into a pod or back. Nothing here goes by a driver's name: a virtual machine's own NIC is
# an iavf or igbvf too, as is a VF that the host uses.
_NETWORK_MANAGER = """\
# NetworkManager leaves VFs alone that 79-mooring-vfs.rules marks, and those on their way into a pod or back.
[keyfile]
unmanaged-devices+=interface-name:mo*-????
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


def quiet(host: Host, used: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield path and text of what keeps the host's own network programs, those that it has, from VFs.

    ``used`` are the PCI addresses of VFs that the host itself uses.
    """
    yield UDEV, _UDEV % "".join(map(_EXCEPTED.format, sorted(used)))
    yield MODULES, _MODULES
    if "/etc/NetworkManager" in host.folders:
        yield NETWORK_MANAGER, _NETWORK_MANAGER
    if "/etc/systemd/network" in host.folders:
        yield NETWORKD, _NETWORKD


def excepted(host: Host) -> frozenset[str]:
    """Return the VFs that an earlier installation has excepted: the host may just not use them at this moment."""
    return frozenset(_EXCEPTION.findall(host.text(UDEV) or ""))


def vf_names(host: Host, used: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield path and text of what keeps udev from renaming VFs' netdevs and RDMA devices.

    rdma-core renames by a rule that runs its program rdma_rename; an administrator's rules in /etc may replace it
    ("Stable names" in rdma-core's Documentation/udev.md). So the packaged rules are repeated for all but VFs. Raise
    NodeError if an administrator has replaced them already. VFs in ``used`` are the host's, and are renamed as before.
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
    rules = [line for line in packaged.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    wanted = (_NO_VF, *(f'KERNELS=="{pci}"' for pci in sorted(used)))
    yield RDMA, _RDMA_HEAD + "".join(f"{line}\n" for rule in rules for line in _for_devices(rule, wanted))


def _for_devices(rule: str, matches: Iterable[str]) -> Iterator[str]:
    """Yield a rule of RDMA devices once with each match, another one as it is."""
    if _RDMA_DEVICES.search(rule) is None:
        yield rule
        return
    for match in matches:
        yield _RDMA_DEVICES.sub(rf"\g<0>{match}, ", rule)


def memlock(unit: str) -> tuple[str, str]:
    """Return path and text of the drop-in that lifts the limit of locked memory for a runtime's containers."""
    return f"/etc/systemd/system/{unit}.d/20-mooring.conf", _MEMLOCK
