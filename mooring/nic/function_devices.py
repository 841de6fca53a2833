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
    return _with_indexes(function, names_in)


def own_netdevs(function: Path) -> list[str]:
    """Return the names of a function's netdevs that are not children of other netdevs."""
    return _top_netdevs(function / "net")


def own_index(function: Path) -> int | None:
    """Return the index of a function's own netdev, None without one here; for several ports the lowest."""
    return min((index for _, index in _with_indexes(function, _top_netdevs)), default=None)


def is_child(netdev: Path) -> bool:
    """Return whether a netdev, by its folder, was made on another one; False if that cannot be read."""
    lower_index, index = _text(netdev / "iflink"), _text(netdev / "ifindex")
    return (netdev / "parent").exists() or (lower_index is not None and index is not None and lower_index != index)


def own_rdma_devices(function: Path) -> list[str]:
    """Return the names of a function's RDMA devices in this network namespace, without sub-devices."""
    names = names_in(function / "infiniband")
    if len(names) < 2:
        return names
    sub_devices = rdma_netlink.sub_devices()
    names = [name for name in names if name not in sub_devices]
    with_verbs = {_device_of(function, verbs) for verbs in names_in(function / "infiniband_verbs")}
    return [name for name in names if name in with_verbs] or names


def own_verbs(function: Path) -> list[str]:
    """Return the names of a function's uverbs devices, in whichever namespace, without those of sub-devices.

    Raise OSError if they cannot be read: no devices is another answer.
    """
    try:
        names = _names(function / "infiniband_verbs")
    except FileNotFoundError:
        return []
    if len(names) < 2:
        return names
    sub_devices = rdma_netlink.sub_devices()
    return [verbs for verbs in names if _device_of(function, verbs) not in sub_devices]


def names_in(folder: Path) -> list[str]:
    """Return what a folder of sysfs holds, numbers within names by their values; nothing if it cannot be read."""
    try:
        return _names(folder)
    except OSError:
        return []


def _names(folder: Path) -> list[str]:
    return sorted((path.name for path in folder.iterdir() if path.name[0] != "."), key=natural)


def _top_netdevs(net: Path) -> list[str]:
    return [name for name in names_in(net) if not is_child(net / name)]


def _with_indexes(function: Path, list_netdevs: Callable[[Path], Iterable[str]]) -> tuple[tuple[str, int], ...]:
    """Return listed netdevs with their indexes; again where one was renamed meanwhile."""
    net = function / "net"
    for _ in range(_MOST_LISTS):
        try:
            return tuple((name, int((net / name / "ifindex").read_text())) for name in list_netdevs(net))
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
