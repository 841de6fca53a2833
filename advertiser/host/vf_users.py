"""Whether the host itself uses a VF that no pod has: by its netdev, or by a process on its RDMA device.

What a rebind of the VF's driver would take from somebody. Processes are counted by their contexts, which the kernel
counts without a query to the driver (fill_res_info in drivers/infiniband/core/nldev.c, Linux 6.12). The kernel's own
users of an RDMA device reach it by the netdev's address.
"""

import errno
from collections.abc import Iterator, Mapping
from pathlib import Path

from advertiser.host.rtnetlink import host_uses
from mooring.nic import rdma_netlink

_ENTRY_NAME, _ENTRY_COUNT = rdma_netlink.RES_SUMMARY_ENTRY_NAME, rdma_netlink.RES_SUMMARY_ENTRY_CURR


def why_in_use(sysfs: Path, pci: str) -> str | None:
    """Return how the host uses a VF, None if it does not; where the kernel does not tell, it is in use.

    Raise OSError if RTNETLINK or NETLINK_RDMA fails.
    """
    device = sysfs / "bus/pci/devices" / pci
    for netdev in _names(device / "net"):
        if uses := host_uses(netdev):
            return f"the host uses {netdev} ({', '.join(uses[:3])})"
    names = _names(device / "infiniband")
    counts = contexts() if names else None
    if counts is None:
        return None
    for name in names:
        if (count := counts.get(name)) is None:
            return f"the kernel does not tell who uses its RDMA device {name}"
        if count:
            return f"processes have {count} contexts on its RDMA device {name}"
    return None


def contexts() -> Mapping[str, int | None] | None:
    """Return how many contexts processes have on each RDMA device of this network namespace, by its name.

    None without an RDMA core in the kernel, and for a device of which the kernel does not tell it.
    """
    try:
        answer = rdma_netlink.exchange(rdma_netlink.RES_GET, {}, dump=True)
    except OSError as refused:
        if refused.errno == errno.EPROTONOSUPPORT:
            return None
        raise
    devices = (dict(message) for message in answer)
    return {
        rdma_netlink.text(device[rdma_netlink.DEV_NAME]): dict(_counts(device)).get("ctx")
        for device in devices
        if rdma_netlink.DEV_NAME in device
    }


def _counts(device: Mapping[int, bytes]) -> Iterator[tuple[str, int]]:
    for _, packed in rdma_netlink.read_attributes(device.get(rdma_netlink.RES_SUMMARY, b"")):
        entry = dict(rdma_netlink.read_attributes(packed))
        name, count = (entry.get(kind) for kind in (_ENTRY_NAME, _ENTRY_COUNT))
        if name is not None and count is not None:
            yield rdma_netlink.text(name), rdma_netlink.number(count)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return []
