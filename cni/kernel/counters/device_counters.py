"""Read the counters of a PCI function from sysfs: the statistics of its netdev, and of its RDMA device's ports.

    net/NAME/statistics/            rtnl_link_stats64 (netstat_show in net/core/net-sysfs.c), read without RTNL
    infiniband/NAME/ports/N/counters/      PMA counters, one MAD to the driver for each (show_pma_counter)
    infiniband/NAME/ports/N/hw_counters/   the driver's own (show_hw_stats); the file "lifespan" is not a counter

The last two are in drivers/infiniband/core/sysfs.c. In shared mode every namespace has the device's folder, but only
the host's copy contains these two (is_full_dev in setup_port). In exclusive mode only the device's own namespace has
the folder. Netlink also answers inside the namespace (RDMA_NLDEV_CMD_STAT_GET, stat_get_doit_default_counter in
nldev.c), but only with hw_counters that fit into one page. The PMA counters are only in sysfs.

A pod may own the folders: it can rename netdevs and devices, and create more of them on the function. So nothing is
found by its name alone, folders are read up to a limit, and a file that is not a decimal number is skipped.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice

from cni.plan.vf_counters import FROM_NETDEV, MOST_COUNTERS, MOST_PORTS

Counts = Mapping[str, int]
_COUNTER = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_PORT = re.compile(r"[0-9]{1,3}", re.ASCII)
# IPoIB's netdevs of partitions are in the same folder as their parent.
_MOST_DEVICES = 64
# More than a u64 with its line feed.
_MOST_DIGITS = 24


def netdev_counters(root: int, pci: str) -> Counts:
    """Return the statistics of a function's netdev, empty without a netdev; ``root`` is an open sysfs of a namespace.

    Children of other netdevs do not count, as in `mooring.nic.function_devices`.
    """
    with _folder(root, f"bus/pci/devices/{pci}/net") as netdevs:
        parents = (name for name in _names(netdevs, _MOST_DEVICES) if not _is_child(netdevs, name))
        pairs = ((_number(netdevs, f"{name}/ifindex"), name) for name in parents)
        first = min(((index, name) for index, name in pairs if index is not None), default=None)
        return _netdev(netdevs, first[1]) if first is not None else {}


def _is_child(netdevs: int | None, name: str) -> bool:
    iflink = _number(netdevs, f"{name}/iflink")
    return iflink is not None and iflink != _number(netdevs, f"{name}/ifindex")


def named_netdev_counters(root: int, name: str) -> Counts:
    """Return the statistics of a netdev by its name, for netdevs without a PCI address in sysfs."""
    with _folder(root, "class/net") as netdevs:
        return _netdev(netdevs, name)


def _netdev(netdevs: int | None, name: str) -> Counts:
    with _folder(netdevs, f"{name}/statistics") as statistics:
        return {counter: value for counter in FROM_NETDEV if (value := _number(statistics, counter)) is not None}


def numa_node(root: int, pci: str) -> str:
    """Return a function's NUMA node as text, empty if sysfs does not know it (-1)."""
    node = _number(root, f"bus/pci/devices/{pci}/numa_node")
    return "" if node is None else str(node)


def has_rdma_device(root: int, pci: str) -> bool:
    """Return whether a function's RDMA device is visible below ``root``, an open sysfs of a namespace."""
    with _folder(root, f"bus/pci/devices/{pci}/infiniband") as devices:
        return bool(_names(devices, 1))


def rdma_counters(root: int, pci: str, name: str | None) -> tuple[Mapping[str, Counts], Mapping[str, Counts]]:
    """Return the port counters and the hardware counters of a function's RDMA device, each by port.

    If there are several devices, it is the one called ``name``.
    """
    with _folder(root, f"bus/pci/devices/{pci}/infiniband") as devices:
        names = _names(devices, _MOST_DEVICES)
        device = name if name in names else names[0] if len(names) == 1 else None
        if device is not None:
            with _folder(devices, f"{device}/ports") as ports:
                return _of_ports(ports, "counters"), _of_ports(ports, "hw_counters")
    return {}, {}


def _of_ports(ports: int | None, kind: str) -> Mapping[str, Counts]:
    names = sorted(filter(_PORT.fullmatch, _names(ports, MOST_PORTS)))
    counts_by_port = {port: _all_numbers(ports, f"{port}/{kind}") for port in names}
    return {port: counts for port, counts in counts_by_port.items() if counts}


def _all_numbers(parent: int | None, path: str) -> Counts:
    with _folder(parent, path) as folder:
        names = (name for name in sorted(_names(folder, MOST_COUNTERS)) if name != "lifespan")
        numbers = ((name, _number(folder, name)) for name in names if _COUNTER.fullmatch(name))
        return {name: value for name, value in numbers if value is not None}


@contextmanager
def _folder(parent: int | None, path: str) -> Iterator[int | None]:
    """Open a folder while the block runs; yield None if it cannot be opened."""
    descriptor = _open(parent, path, os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open(folder: int | None, path: str, flags: int) -> int | None:
    # os.open and os.scandir would take None for the working directory.
    if folder is None:
        return None
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=folder)
    except OSError:
        return None


def _names(folder: int | None, limit: int) -> list[str]:
    if folder is None:
        return []
    with suppress(OSError), os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, limit) if entry.name[0] != "."]
    return []


def _number(folder: int | None, path: str) -> int | None:
    """Return the number in a file; None if the file has none or cannot be read."""
    descriptor = _open(folder, path, os.O_NONBLOCK)
    if descriptor is None:
        return None
    try:
        text = os.read(descriptor, _MOST_DIGITS)
        return int(text) if text.strip().isdigit() else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
