"""Find PFs that share a cable, as with socket direct or several PCI links to one NIC.

Two PFs share a cable if they have the same switch and the same port on it: ``phys_switch_id`` and ``phys_port_name``.
With mlx5 the first is the system image GUID, which all functions of a NIC share. The second is the port's number,
counted from 0 (mlx5e_devlink_port_register): the firmware's native_port_num minus one or, if the firmware does not
report it, the PCI function's number (mlx5_get_dev_index in include/linux/mlx5/driver.h); devlink turns it into "p0"
(__devlink_port_phys_port_name_get in net/devlink/port.c). With bnxt_en they are the serial number and the port, which
partitions of a port share (bnxt_dl_register). All sources are Linux 6.12. So two ports of one NIC are two cables.

mlx5 has no ``phys_switch_id`` on InfiniBand, and none on Ethernet in legacy mode before Linux 5.13. There the RDMA
devices' ``sys_image_guid`` identifies the NIC, and the PCI function's number the port. For example, on a host with two
links to one ConnectX-7, the functions 0 of both links share a cable, and the functions 1 share another (ibstat in
github.com/geerlingguy/sbc-reviews/issues/92). The ``sys_image_guid`` of other drivers proves nothing: hfi1 has the same
one for all NICs of a host (github.com/ROCm/rocm-systems/issues/11138).
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
# __devlink_port_phys_port_name_get in net/devlink/port.c: a physical port, or a part of a split port.
_PHYSICAL = re.compile(r"p[0-9]+(?:s[0-9]+)?", re.ASCII)
_IMAGE_GUID_DRIVER = "mlx5_core"


def port_key(function: PciFunction, wish: str | None) -> PortKey | None:
    """Return a key that PFs on the same cable share, None if it is unknown; ``wish`` is the offer's ``port``."""
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
    """Return the PFs with their ports: PFs with equal keys get the same one.

    Its name is the word in the offer or, without one, the PCI address of the first PF.
    """
    counts = Counter(key for key in keys if key is not None)
    names: dict[PortKey, str] = {}
    pfs_with_ports = []
    for pf, key in zip(pfs, keys, strict=True):
        if key is not None and counts[key] > 1:
            name = names.setdefault(key, key[1] if key[0] == "offer" else pf.pci)
            pfs_with_ports.append(replace(pf, port=name))
        else:
            pfs_with_ports.append(pf)
    return tuple(pfs_with_ports)


def _is_set(number: Text) -> bool:
    return number is not None and any(digit not in "0:" for digit in number)
