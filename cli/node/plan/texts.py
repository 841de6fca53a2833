"""The texts of the files that an installation adds to a host beside the units; the first line of each says why."""

import re
from collections.abc import Iterable, Iterator

from cli.node.errors import NodeError
from cli.node.plan.states import Host
from mooring.records.node_offer import SET_ASIDE_FOLDER

UDEV = "/etc/udev/rules.d/79-mooring-vfs.rules"
MODULES = "/etc/modules-load.d/mooring.conf"
NETWORK_MANAGER = "/etc/NetworkManager/conf.d/20-mooring.conf"
NETWORKD = "/etc/systemd/network/00-mooring-vfs.network"
LINK = "/etc/systemd/network/00-mooring-vfs.link"
# A file in /etc replaces the file of the same name in /usr/lib (udev(7)). rdma-core renames devices by this one.
RDMA_RULES = "60-rdma-persistent-naming.rules"
RDMA = f"/etc/udev/rules.d/{RDMA_RULES}"
RDMA_PACKAGED = tuple(f"{folder}/udev/rules.d/{RDMA_RULES}" for folder in ("/usr/lib", "/lib"))

# To the host a VF that returns from a pod is a new device. A program that configured it would change what the next pod
# gets. systemd expands $id in the path of TEST (udev_rule_apply_token_to_event in src/udev/udev-rules.c).
_UDEV = f"""\
# Mooring's VFs come and go with pods, so no program of the host configures them. Only VFs have a physfn. The exceptions
# are VFs that the offer sets aside, and VFs that the host used at installation, which are listed here.
ACTION=="remove", GOTO="mooring_end"
SUBSYSTEM!="net", GOTO="mooring_end"
SUBSYSTEMS=="pci", TEST=="/var/lib/mooring/{SET_ASIDE_FOLDER}/$id", GOTO="mooring_end"
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
# A netdev has a name such as `mo1-3b08` while it moves into a pod or back. The match does not use driver names, because
# a virtual machine's own NIC or a VF that the host uses can also have the driver iavf or igbvf.
_NETWORK_MANAGER = """\
# NetworkManager ignores VFs that 79-mooring-vfs.rules marks, and VFs that are moving into a pod or back.
[keyfile]
unmanaged-devices+=interface-name:mo*-????
"""
_NETWORKD = """\
# systemd-networkd ignores VFs.
[Match]
Property=MOORING_VF=1

[Link]
Unmanaged=yes
"""
# Only the first .link file that matches is applied (systemd.link(5)), so no other policy or renaming applies.
_LINK = """\
# VFs keep the names and addresses from the kernel. 79-mooring-vfs.rules sets the property.
[Match]
Property=MOORING_VF=1

[Link]
NamePolicy=keep
MACAddressPolicy=none
"""
_RDMA_HEAD = (
    f"# Mooring's VFs keep the names of their RDMA devices. The other rules are from rdma-core's {RDMA_RULES}.\n"
)
_NO_VF = 'TEST!="device/physfn"'
_RDMA_DEVICES = re.compile(r'SUBSYSTEM=="infiniband", *')
_MEMLOCK = """\
# Containers inherit this limit: RDMA programs lock the memory that they register.
[Service]
LimitMEMLOCK=infinity
"""


def quiet(host: Host, used: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield path and text of the files that keep the host's network programs from configuring VFs.

    ``used`` are the PCI addresses of VFs that the host itself uses.
    """
    yield UDEV, _UDEV % "".join(map(_EXCEPTED.format, sorted(used)))
    yield MODULES, _MODULES
    if "/etc/NetworkManager" in host.folders:
        yield NETWORK_MANAGER, _NETWORK_MANAGER
    if "/etc/systemd/network" in host.folders:
        yield NETWORKD, _NETWORKD


def excepted(host: Host) -> frozenset[str]:
    """Return the VFs that an earlier installation excepted; the host may use them although it does not just now."""
    return frozenset(_EXCEPTION.findall(host.text(UDEV) or ""))


def vf_names(host: Host, used: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield path and text of the files that keep udev from renaming VFs' netdevs and RDMA devices.

    A rule of rdma-core renames devices with the program rdma_rename; an administrator can replace it by rules in /etc
    ("Stable names" in rdma-core's Documentation/udev.md). So our file repeats the packaged rules for all devices except
    VFs. Raise NodeError if an administrator has already replaced the rules. VFs in ``used`` belong to the host and are
    still renamed.
    """
    yield LINK, _LINK
    # This may create the folder of systemd-networkd. A host with that folder counts as one that uses systemd-networkd.
    yield NETWORKD, _NETWORKD
    packaged = next((text for path in RDMA_PACKAGED if (text := host.text(path)) is not None), None)
    if packaged is None:
        return
    there = host.text(RDMA)
    if there is not None and not there.startswith(_RDMA_HEAD):
        advice = 'add TEST!="device/physfn" to its rules, or use --vf-names udev'
        raise NodeError(f"{RDMA!r} is not Mooring's: {advice}")
    rules = [line for line in packaged.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    wanted = (_NO_VF, *(f'KERNELS=="{pci}"' for pci in sorted(used)))
    yield RDMA, _RDMA_HEAD + "".join(f"{line}\n" for rule in rules for line in _for_devices(rule, wanted))


def _for_devices(rule: str, matches: Iterable[str]) -> Iterator[str]:
    """Yield a rule for RDMA devices once with each match, and other rules unchanged."""
    if _RDMA_DEVICES.search(rule) is None:
        yield rule
        return
    for match in matches:
        yield _RDMA_DEVICES.sub(rf"\g<0>{match}, ", rule)


def memlock(unit: str) -> tuple[str, str]:
    """Return path and text of the drop-in that lifts the limit of locked memory for a runtime's containers."""
    return f"/etc/systemd/system/{unit}.d/20-mooring.conf", _MEMLOCK
