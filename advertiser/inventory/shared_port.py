"""Find the PFs that are on one cable: socket direct, and hosts that reach one NIC by several PCI links.

Two PFs are on one cable if they show the same switch and the same port of it: ``phys_switch_id`` and
``phys_port_name``. With mlx5 the first is the system image GUID, which all functions of a NIC share, and the second
the port's number from 0 on (mlx5e_devlink_port_register): firmware's native_port_num less one, or, where firmware tells
none, the PCI function's number (mlx5_get_dev_index in include/linux/mlx5/driver.h). devlink makes "p0" of it
(__devlink_port_phys_port_name_get in net/devlink/port.c). With bnxt_en it is the serial number and the port that
partitions of it share (bnxt_dl_register); all in Linux 6.12. So two ports of one NIC are two cables.

mlx5 shows no ``phys_switch_id`` on InfiniBand, and none on Ethernet before Linux 5.13 in legacy mode. There the same
``sys_image_guid`` of the RDMA devices tells the NIC, and the PCI function's number the port. So it is on a host with
two links to one ConnectX-7: functions 0 of both links are one cable, functions 1 are another (ibstat in
github.com/geerlingguy/sbc-reviews/issues/92). Other drivers' ``sys_image_guid`` proves nothing: hfi1 has one for all
NICs of a host (github.com/ROCm/rocm-systems/issues/11138).
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from advertiser.inventory import port
from advertiser.inventory.facts import PciFunction, Text
from advertiser.inventory.offer import OWN_PORT
from mooring.annotations.inventory import Pf

PortKey = tuple[str, ...]
# __devlink_port_phys_port_name_get in net/devlink/port.c: a physical port, whole or a part of one that is split.
_PHYSICAL = re.compile(r"p[0-9]+(?:s[0-9]+)?", re.ASCII)
_IMAGE_GUID_DRIVER = "mlx5_core"


def port_key(function: PciFunction, wish: str | None) -> PortKey | None:
    """Return what PFs on one cable have in common, None if nothing tells; ``wish`` is the offer's ``port``."""
    if wish is not None:
        return None if wish == OWN_PORT else ("offer", wish)
    netdev = port.main_netdev(function.netdevs)
    name = netdev.phys_port_name if netdev is not None else None
    if netdev is not None and name is not None and _PHYSICAL.fullmatch(name) and _is_set(netdev.phys_switch_id):
        return ("switch", netdev.phys_switch_id or "", name)
    guid = function.rdma[0].sys_image_guid if function.rdma else None
    if function.driver == _IMAGE_GUID_DRIVER and _is_set(guid):
        return ("image", guid or "", function.address.rpartition(".")[2])
    return None


def with_ports(pfs: Sequence[Pf], keys: Sequence[PortKey | None]) -> tuple[Pf, ...]:
    """Return the PFs with a common port for those with equal keys: the offer's word, else the first one's address."""
    counts = Counter(key for key in keys if key is not None)
    names: dict[PortKey, str] = {}
    found = []
    for pf, key in zip(pfs, keys, strict=True):
        if key is not None and counts[key] > 1:
            name = names.setdefault(key, key[1] if key[0] == "offer" else pf.pci)
            found.append(replace(pf, port=name))
        else:
            found.append(pf)
    return tuple(found)


def _is_set(number: Text) -> bool:
    return number is not None and any(digit not in "0:" for digit in number)
