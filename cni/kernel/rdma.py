"""RDMA devices in the network namespace of the calling thread: list them, move them, and find their users.

In exclusive mode an RDMA device is in one network namespace and follows its VF. In shared mode (the kernel's default)
every namespace sees it, and the kernel refuses to move it. A kernel without NETLINK_RDMA has no RDMA. Source: nldev.c,
device.c and restrack.c in the kernel's drivers/infiniband/core.

What acts on a device takes its index. udev's rule of rdma-core (60-rdma-persistent-naming.rules) renames a device some
time after it appears, which for the host is also its return from another namespace (rdma_dev_change_netns). The index
stays as long as the device (assign_name).
"""

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from cni.kernel.sysfs import Sysfs
from mooring.nic import netlink_codec, rdma_netlink

Mode = Literal["shared", "exclusive"]
# A process that has the device but did not open it: the kernel names only those that opened it.
NAMELESS = 0
# A list takes a millisecond, and a move of a VF, which makes a list invalid, tens of them.
_MOST_LISTS = 10
# What a process creates on a device: the query, and the table and entry that list it.
_Table = tuple[int, int, int]
_QUEUE_PAIRS: _Table = (rdma_netlink.RES_QP_GET, rdma_netlink.RES_QP, rdma_netlink.RES_QP_ENTRY)
_CM_IDS: _Table = (rdma_netlink.RES_CM_ID_GET, rdma_netlink.RES_CM_ID, rdma_netlink.RES_CM_ID_ENTRY)
# Newer than the others (5.15).
_CONTEXTS: _Table = (rdma_netlink.RES_CTX_GET, rdma_netlink.RES_CTX, rdma_netlink.RES_CTX_ENTRY)


# A kernel before 5.2 does not support the query.
_CANNOT_SAY = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOENT)
# A device that has gone since it was listed (nldev_get_chardev), and one in the middle of a move: it loses its uverbs
# device before it leaves the list (disable_device), and gets another one after it is listed again
# (enable_device_and_get); ib_get_client_nl_info has no client to ask meanwhile.
_HAS_NO_VERBS = (errno.EINVAL, errno.EOPNOTSUPP)


@dataclass(frozen=True, slots=True)
class Device:
    """An RDMA device of this namespace; its name may change at any time."""

    name: str
    index: int


def mode() -> Mode | None:
    """Return how the RDMA stack shares its devices, None without RDMA; a kernel that does not report it shares them.

    Raise OSError if the query fails: a failed query must not leave a device behind.
    """
    try:
        answer = rdma_netlink.exchange(rdma_netlink.SYS_GET, {})
    except OSError as refused:
        if refused.errno == errno.EPROTONOSUPPORT:
            return None
        if refused.errno in _CANNOT_SAY:
            return "shared"
        raise
    said = dict(chain(*answer)).get(rdma_netlink.SYS_ATTR_NETNS_MODE)
    return "exclusive" if said is not None and netlink_codec.number(said) == 0 else "shared"


def devices() -> Mapping[str, int]:
    """Return the index of every RDMA device visible in this namespace, by name.

    The kernel lists one device at a time and counts them again for the next (ib_enum_all_devs): if another one leaves
    the namespace meanwhile, the next is left out. So the list is read until two reads agree.
    """
    found = before = _listed()
    for _ in range(_MOST_LISTS):
        now = _listed()
        found = {**found, **now}
        if now == before:
            break
        before = now
    return found


def _listed() -> Mapping[str, int]:
    try:
        found = [dict(message) for message in rdma_netlink.exchange(rdma_netlink.GET, {}, dump=True)]
    except OSError as refused:
        if refused.errno == errno.EPROTONOSUPPORT:
            return {}
        raise
    return {
        netlink_codec.text(device[rdma_netlink.DEV_NAME]): netlink_codec.number(device[rdma_netlink.DEV_INDEX])
        for device in found
    }


def device_of(sysfs: Sysfs, pci: str) -> Device | None:
    """Return a function's RDMA device if it is visible in this thread's network namespace.

    sysfs has the name, NETLINK_RDMA the index, and a pod may exchange the names of its devices in between. Both have
    the number of the uverbs character device, so that decides. If it is renamed or moved meanwhile, all is read again.
    In the middle of a move it has no uverbs device, and is visible in no namespace.
    """
    for _ in range(_MOST_LISTS):
        name, number = sysfs.rdma(pci), sysfs.verbs_number(pci)
        if name is None:
            return None
        found = devices()
        likely = sorted(found, key=lambda each: each != name) if number is not None else [name] if name in found else []
        device = next((Device(each, found[each]) for each in likely if _has_verbs(found[each], number)), None)
        # The number is of this device in any case; without one the name must still be its own. A move changes it.
        if (device is not None and number is not None) or (sysfs.rdma(pci), sysfs.verbs_number(pci)) == (name, number):
            return device
    return None


def _has_verbs(index: int, number: str | None) -> bool:
    """Return whether a device has the uverbs device of this number (nldev_get_chardev)."""
    if number is None:
        return True
    try:
        answer = rdma_netlink.exchange(rdma_netlink.GET_CHARDEV, {**_at(index), rdma_netlink.CHARDEV_TYPE: b"uverbs\0"})
    except OSError as gone:
        if gone.errno in _HAS_NO_VERBS:
            return False
        raise
    packed = netlink_codec.number(dict(chain(*answer)).get(rdma_netlink.CHARDEV, b""))
    # huge_encode_dev of include/linux/kdev_t.h.
    return f"{packed >> 8 & 0xFFF}:{packed & 0xFF | packed >> 12 & 0xFFF00}" == number


def move(index: int, netns: str) -> None:
    """Move a device of this namespace to the one at a path; the kernel destroys the objects of processes on it."""
    descriptor = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _set(index, {rdma_netlink.NET_NS_FD: netlink_codec.u32(descriptor)})
    finally:
        os.close(descriptor)


def rename(index: int, to: str) -> None:
    _set(index, {rdma_netlink.DEV_NAME: netlink_codec.packed_text(to)})


def _set(index: int, attributes: Mapping[int, bytes]) -> None:
    """Change a device; raise OSError, ENODEV without one, which the kernel reports as EINVAL (nldev_set_doit)."""
    try:
        rdma_netlink.exchange(rdma_netlink.SET, {**_at(index), **attributes})
    except OSError as refused:
        if refused.errno == errno.EINVAL and index not in devices().values():
            raise OSError(errno.ENODEV, f"no rdma device {index} in this network namespace") from refused
        raise


def users(number: int) -> frozenset[int]:
    """Return the ids of the processes that use a device, with NAMELESS for contexts that another process opened.

    Objects of the kernel's own clients do not count: they are created and removed with the device. A process has queue
    pairs only on a context, and the kernel counts and lists contexts without a query to the driver.
    """
    index = _at(number)
    (summary,) = rdma_netlink.exchange(rdma_netlink.RES_GET, index)
    contexts = dict(_counts(summary)).get("ctx")
    opened = _users_in(_CONTEXTS, index)
    found = frozenset(chain(opened, _users_in(_CM_IDS, index), _users_of_queue_pairs(index, contexts)))
    return found | (frozenset((NAMELESS,)) if (contexts or 0) > len(opened) else frozenset())


def _users_of_queue_pairs(index: Mapping[int, bytes], contexts: int | None) -> Sequence[int]:
    """Return the processes that the kernel names for queue pairs; NAMELESS if it cannot, unless no context exists.

    The kernel queries the driver about each, and the first error ends the list (fill_res_qp_entry_query in nldev.c).
    mlx5 returns ENOSYS for those of RSS (mlx5_ib_query_qp). A VF with a fault returns an error for all of them, the
    kernel's own among them.
    """
    try:
        return _read_users(_QUEUE_PAIRS, index)
    except OSError:
        return () if contexts == 0 else (NAMELESS,)


def _users_in(table: _Table, index: Mapping[int, bytes]) -> list[int]:
    """Return the processes that a table names; empty if the kernel does not have the table."""
    try:
        return _read_users(table, index)
    except OSError as unknown:
        if unknown.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return []
        raise


def _read_users(table: _Table, index: Mapping[int, bytes]) -> list[int]:
    command, kind, entry = table
    answer = rdma_netlink.exchange(command, index, dump=True)
    return [pid for message in answer for pid in users_listed(message, kind, entry)]


def users_listed(message: Sequence[netlink_codec.Attribute], table: int, entry: int) -> Iterator[int]:
    """Yield the process ids in one message of a resource table; an object of the kernel has a name instead."""
    for kind, value in message:
        if kind in (table, entry):
            yield from users_listed(tuple(netlink_codec.read_attributes(value)), table, entry)
        elif kind == rdma_netlink.RES_PID:
            yield netlink_codec.number(value)


def _counts(message: Sequence[netlink_codec.Attribute]) -> Iterator[tuple[str, int]]:
    """Yield how many objects of each kind there are: "qp", "ctx", …"""
    summary = dict(message).get(rdma_netlink.RES_SUMMARY, b"")
    for _, value in netlink_codec.read_attributes(summary):
        entry = dict(netlink_codec.read_attributes(value))
        yield (
            netlink_codec.text(entry[rdma_netlink.RES_SUMMARY_ENTRY_NAME]),
            netlink_codec.number(entry[rdma_netlink.RES_SUMMARY_ENTRY_CURR]),
        )


def _at(index: int) -> Mapping[int, bytes]:
    return {rdma_netlink.DEV_INDEX: netlink_codec.u32(index)}
