"""List and move RDMA devices in the network namespace of the calling thread, and find the processes that use them.

In exclusive mode an RDMA device is in one network namespace and follows its VF. In shared mode (the kernel's default)
it is visible in every namespace, and the kernel refuses to move it. A kernel without NETLINK_RDMA has no RDMA. Source:
nldev.c, device.c and restrack.c in the kernel's drivers/infiniband/core.

Functions take a device's index, which stays the same as long as the device exists (assign_name). Its name does not: the
udev rule of rdma-core (60-rdma-persistent-naming.rules) renames a device some time after it appears on the host, also
after its return from another namespace (rdma_dev_change_netns).
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
# Stands for a process that has the device but did not open it: the kernel lists only processes that opened it.
NAMELESS = 0
# How often a list is read again. A list takes a millisecond; the move of a VF, which invalidates it, takes tens.
_MOST_LISTS = 10
# A kind of object that processes create on a device: the query, and the table and entry attributes of its answer.
_Table = tuple[int, int, int]
_QUEUE_PAIRS: _Table = (rdma_netlink.RES_QP_GET, rdma_netlink.RES_QP, rdma_netlink.RES_QP_ENTRY)
_CM_IDS: _Table = (rdma_netlink.RES_CM_ID_GET, rdma_netlink.RES_CM_ID, rdma_netlink.RES_CM_ID_ENTRY)
# From Linux 5.15 on; the others are older.
_CONTEXTS: _Table = (rdma_netlink.RES_CTX_GET, rdma_netlink.RES_CTX, rdma_netlink.RES_CTX_ENTRY)


# The errors of kernels before 5.2, which do not support the query.
_NO_SUCH_QUERY = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOENT)
# The errors for a device that disappeared after it was listed (nldev_get_chardev), or is in the middle of a move. It
# loses its uverbs device before it leaves the list (disable_device), and gets a new one after it is listed again
# (enable_device_and_get). Until then ib_get_client_nl_info has no client.
_HAS_NO_VERBS = (errno.EINVAL, errno.EOPNOTSUPP)


@dataclass(frozen=True, slots=True)
class Device:
    """An RDMA device of this namespace; its name may change at any time."""

    name: str
    index: int


def mode() -> Mode | None:
    """Return the sharing mode of the RDMA stack, None without RDMA; kernels that do not report it use "shared".

    Raise OSError if the query fails. Callers must not continue then, because the device would not move with its VF.
    """
    try:
        answer = rdma_netlink.exchange(rdma_netlink.SYS_GET, {})
    except OSError as refusal:
        if refusal.errno == errno.EPROTONOSUPPORT:
            return None
        if refusal.errno in _NO_SUCH_QUERY:
            return "shared"
        raise
    netns_mode = dict(chain(*answer)).get(rdma_netlink.SYS_ATTR_NETNS_MODE)
    return "exclusive" if netns_mode is not None and netlink_codec.number(netns_mode) == 0 else "shared"


def devices() -> Mapping[str, int]:
    """Return the index of every RDMA device visible in this namespace, by name.

    The kernel counts the devices again for each one that it lists (ib_enum_all_devs). If a device leaves the namespace
    meanwhile, the list skips the next one. So the list is read until two reads agree.
    """
    indexes = previous = _list_devices()
    for _ in range(_MOST_LISTS):
        latest = _list_devices()
        indexes = {**indexes, **latest}
        if latest == previous:
            break
        previous = latest
    return indexes


def _list_devices() -> Mapping[str, int]:
    try:
        messages = [dict(message) for message in rdma_netlink.exchange(rdma_netlink.GET, {}, dump=True)]
    except OSError as refusal:
        if refusal.errno == errno.EPROTONOSUPPORT:
            return {}
        raise
    return {
        netlink_codec.text(device[rdma_netlink.DEV_NAME]): netlink_codec.number(device[rdma_netlink.DEV_INDEX])
        for device in messages
    }


def device_of(sysfs: Sysfs, pci: str) -> Device | None:
    """Return a function's RDMA device if it is visible in this thread's network namespace.

    sysfs has the name and NETLINK_RDMA the index, but a pod may swap the names of its devices in between. Both have the
    number of the uverbs character device, which identifies it. If the device is renamed or moved meanwhile, everything
    is read again. In the middle of a move it has no uverbs device and is not visible in any namespace.
    """
    for _ in range(_MOST_LISTS):
        name, number = sysfs.rdma(pci), sysfs.verbs_number(pci)
        if name is None:
            return None
        indexes = devices()
        if number is not None:
            candidates = sorted(indexes, key=lambda candidate: candidate != name)
        else:
            candidates = [name] if name in indexes else []
        matches = (Device(match, indexes[match]) for match in candidates if _has_verbs(indexes[match], number))
        device = next(matches, None)
        # With a number the device is certain. Without one, the name must not have changed meanwhile.
        if (device is not None and number is not None) or (sysfs.rdma(pci), sysfs.verbs_number(pci)) == (name, number):
            return device
    return None


def _has_verbs(index: int, number: str | None) -> bool:
    """Return whether a device has the uverbs device of this number (nldev_get_chardev)."""
    if number is None:
        return True
    try:
        answer = rdma_netlink.exchange(rdma_netlink.GET_CHARDEV, {**_at(index), rdma_netlink.CHARDEV_TYPE: b"uverbs\0"})
    except OSError as error:
        if error.errno in _HAS_NO_VERBS:
            return False
        raise
    packed = netlink_codec.number(dict(chain(*answer)).get(rdma_netlink.CHARDEV, b""))
    # huge_encode_dev of include/linux/kdev_t.h.
    return f"{packed >> 8 & 0xFFF}:{packed & 0xFF | packed >> 12 & 0xFFF00}" == number


def move(index: int, netns: str) -> None:
    """Move a device to the network namespace at the path ``netns``; the kernel destroys the objects of its users."""
    descriptor = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _set(index, {rdma_netlink.NET_NS_FD: netlink_codec.u32(descriptor)})
    finally:
        os.close(descriptor)


def port_state(sysfs: Sysfs, pci: str) -> int | None:
    """Return the state (IB_PORT_*) of the first port of a function's RDMA device, None if it is not visible here."""
    device = device_of(sysfs, pci)
    if device is None:
        return None
    port = {**_at(device.index), rdma_netlink.PORT_INDEX: netlink_codec.u32(1)}
    (answer,) = rdma_netlink.exchange(rdma_netlink.PORT_GET, port)
    state = dict(answer).get(rdma_netlink.PORT_STATE)
    return None if state is None else netlink_codec.number(state)


def rename(index: int, name: str) -> None:
    _set(index, {rdma_netlink.DEV_NAME: netlink_codec.packed_text(name)})


def _set(index: int, attributes: Mapping[int, bytes]) -> None:
    """Change a device; raise OSError. ENODEV stands for a missing device, for which the kernel reports EINVAL.

    A device is missing too while it is moved (disable_device, ib_device_get_by_index). It may be listed again as soon
    as the error is here, so the list is no proof. Source: nldev_set_doit, which has no other EINVAL for what is sent.
    """
    try:
        rdma_netlink.exchange(rdma_netlink.SET, {**_at(index), **attributes})
    except OSError as refusal:
        if refusal.errno == errno.EINVAL:
            raise OSError(errno.ENODEV, f"no rdma device {index} in this network namespace") from refusal
        raise


def users(number: int) -> frozenset[int]:
    """Return the ids of the processes that use a device, with NAMELESS for contexts that another process opened.

    Objects of kernel clients do not count, because they are created and removed with the device. Every queue pair of a
    process is on a context, and the kernel counts and lists contexts without a query to the driver.
    """
    index = _at(number)
    (summary,) = rdma_netlink.exchange(rdma_netlink.RES_GET, index)
    contexts = dict(_counts(summary)).get("ctx")
    openers = _users_in(_CONTEXTS, index)
    pids = frozenset(chain(openers, _users_in(_CM_IDS, index), _users_of_queue_pairs(index, contexts)))
    return pids | (frozenset((NAMELESS,)) if (contexts or 0) > len(openers) else frozenset())


def _users_of_queue_pairs(index: Mapping[int, bytes], contexts: int | None) -> Sequence[int]:
    """Return the processes with queue pairs; NAMELESS if the kernel cannot list them and contexts exist.

    The kernel queries the driver about each queue pair, and the first error ends the list (fill_res_qp_entry_query in
    nldev.c). mlx5 returns ENOSYS for queue pairs of RSS (mlx5_ib_query_qp). A faulty VF returns an error for all of
    them, including the kernel's own.
    """
    try:
        return _read_users(_QUEUE_PAIRS, index)
    except OSError:
        return () if contexts == 0 else (NAMELESS,)


def _users_in(table: _Table, index: Mapping[int, bytes]) -> list[int]:
    """Return the processes in a table; empty if the kernel does not have the table."""
    try:
        return _read_users(table, index)
    except OSError as unknown:
        if unknown.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return []
        raise


def _read_users(table: _Table, index: Mapping[int, bytes]) -> list[int]:
    command, kind, entry = table
    answer = rdma_netlink.exchange(command, index, dump=True)
    return [pid for message in answer for pid in users_in_message(message, kind, entry)]


def users_in_message(message: Sequence[netlink_codec.Attribute], table: int, entry: int) -> Iterator[int]:
    """Yield the process ids in one message of a resource table; objects of the kernel have a name instead."""
    for kind, value in message:
        if kind in (table, entry):
            yield from users_in_message(tuple(netlink_codec.read_attributes(value)), table, entry)
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
