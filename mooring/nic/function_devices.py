"""Find the main netdev and RDMA device among several below one PCI function.

- netdev: an IPoIB child (the interface of a partition) can have the same PCI parent as the netdev on which it was
  created, and in a pod often has the lower index. In Linux 6.12 it has no PCI parent (only ipoib_parent_init sets it).
  Only children that were created through sysfs have the file ``parent``. But the ``iflink`` of every child is the index
  of the other netdev, and the ``iflink`` of a function's own netdev is its own index (__ipoib_vlan_add and
  ipoib_get_iflink in drivers/infiniband/ulp/ipoib).
- RDMA device: a sub-device, such as mlx5's SMI device of a port with several planes, is below the same function as its
  parent (mlx5_ib_add_sub_dev). The kernel reports the parent (RDMA_NLDEV_ATTR_PARENT_NAME, Linux 6.11), and creates no
  uverbs device for the sub-device (ib_uverbs_add_one).

``function`` is a PCI function's folder in sysfs, which shows the devices of one network namespace.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from mooring.natural_order import natural
from mooring.nic import rdma_netlink

# How often to read again, because a device was renamed or removed while its folder was read.
_MOST_LISTS = 10


def all_netdevs(function: Path) -> tuple[tuple[str, int], ...]:
    """Return name and index of each netdev of a function, including IPoIB children."""
    return _indexed(function, names_in)


def own_netdevs(function: Path) -> list[str]:
    """Return the names of a function's netdevs that are not children of other netdevs."""
    return _own(function / "net")


def own_index(function: Path) -> int | None:
    """Return the index of a function's own netdev, None without one here; for several ports the lowest."""
    return min((index for _, index in _indexed(function, _own)), default=None)


def is_child(netdev: Path) -> bool:
    """Return whether a netdev, by its folder, was made on another one; False if that cannot be read."""
    lower, own = _text(netdev / "iflink"), _text(netdev / "ifindex")
    return (netdev / "parent").exists() or (lower is not None and own is not None and lower != own)


def own_rdma_devices(function: Path) -> list[str]:
    """Return the names of a function's RDMA devices in this network namespace, without sub-devices."""
    found = names_in(function / "infiniband")
    if len(found) < 2:
        return found
    sub_devices = rdma_netlink.sub_devices()
    found = [name for name in found if name not in sub_devices]
    with_verbs = {_device_of(function, verbs) for verbs in names_in(function / "infiniband_verbs")}
    return [name for name in found if name in with_verbs] or found


def own_verbs(function: Path) -> list[str]:
    """Return the names of a function's uverbs devices, in whichever namespace, without those of sub-devices.

    Raise OSError if they cannot be read: no devices is another answer.
    """
    try:
        found = _names(function / "infiniband_verbs")
    except FileNotFoundError:
        return []
    if len(found) < 2:
        return found
    sub_devices = rdma_netlink.sub_devices()
    return [verbs for verbs in found if _device_of(function, verbs) not in sub_devices]


def names_in(folder: Path) -> list[str]:
    """Return what a folder of sysfs holds, numbers within names by their values; nothing if it cannot be read."""
    try:
        return _names(folder)
    except OSError:
        return []


def _names(folder: Path) -> list[str]:
    return sorted((path.name for path in folder.iterdir() if path.name[0] != "."), key=natural)


def _own(net: Path) -> list[str]:
    return [name for name in names_in(net) if not is_child(net / name)]


def _indexed(function: Path, listed: Callable[[Path], Iterable[str]]) -> tuple[tuple[str, int], ...]:
    """Return listed netdevs with their indexes; again where one was renamed meanwhile."""
    net = function / "net"
    for _ in range(_MOST_LISTS):
        try:
            return tuple((name, int((net / name / "ifindex").read_text())) for name in listed(net))
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            break
    return ()


def _device_of(function: Path, verbs: str) -> str | None:
    return _text(function / "infiniband_verbs" / verbs / "ibdev")


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="surrogateescape").strip()
    except OSError:
        return None
