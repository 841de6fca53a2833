"""Rebind the driver of a VF that a ledger entry is for, and wait for its RDMA device.

The netdev is waited for where it is restored. A rebind takes every object on the VF from every process, wherever the
VF is, and its netdev, made again, has nothing of the one before. While the VF has no driver its settings on the PF are
restored, so that the driver finds nothing of the pod's.
"""

import time
from functools import partial

import structlog

from cni.kernel import driver
from cni.spec.skel import TRY_AGAIN, CniError
from cni.vf import rdma_users
from cni.vf.detach.original_settings import restore_unbound
from cni.vf.node import Node, device_returns
from mooring.records.ledger import LedgerEntry

_log = structlog.get_logger()


class InUseError(CniError):
    """A rebind that would take the VF from somebody else than its pod."""


class RebindError(CniError):
    """A rebind that has failed, or was in vain: it must not be repeated every few seconds."""


def check_unused(node: Node, entry: LedgerEntry) -> None:
    """Raise InUseError (code 11) while a rebind of a VF's driver would take it from the host."""
    if user := rdma_users.other_user(node.sysfs, entry):
        raise InUseError(TRY_AGAIN, f"the driver of vf {entry.pci} is not rebound: {user}")


def rebind(node: Node, entry: LedgerEntry, why: str, **fields: object) -> None:
    """Rebind a VF's driver and log why; raise InUseError or RebindError (code 11)."""
    check_unused(node, entry)
    began = time.monotonic()
    try:
        driver.rebind(node.sysfs, entry.pci, partial(restore_unbound, node, entry))
    except OSError as stuck:
        raise RebindError(TRY_AGAIN, f"the driver of vf {entry.pci} cannot be rebound", str(stuck)) from stuck
    is_back = device_returns(node, entry)
    took_s = round(time.monotonic() - began, 3)
    event = _log.bind(pci=entry.pci, pod=entry.pod, reason=why, seconds=took_s, **fields)
    if is_back:
        event.warning("vf's driver is rebound")
    else:
        event.warning("vf's driver is rebound, but its rdma device did not come back", rdma=entry.rdma)
