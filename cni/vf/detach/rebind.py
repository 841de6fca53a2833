"""Rebind the driver of a VF that has a ledger entry, and wait for its RDMA device.

A rebind destroys the objects of all processes on the VF, in any namespace, and creates a new netdev without the old
settings. The code that restores the netdev waits for it. While the VF has no driver, its settings on the PF are
restored, so that the driver does not read the pod's settings.
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
    """A rebind that is not possible because another user than the pod would lose the VF."""


class RebindError(CniError):
    """A rebind that failed or did not help; it must not be repeated every few seconds."""


def check_no_user(node: Node, entry: LedgerEntry) -> None:
    """Raise InUseError (code 11) if a rebind of the VF's driver would take the VF from another user."""
    if user := rdma_users.other_user(node.sysfs, entry):
        raise InUseError(TRY_AGAIN, f"the driver of vf {entry.pci} is not rebound: {user}")


def rebind(node: Node, entry: LedgerEntry, reason: str, **fields: object) -> None:
    """Rebind a VF's driver and log why; raise InUseError or RebindError (code 11)."""
    check_no_user(node, entry)
    began = time.monotonic()
    try:
        driver.rebind(node.sysfs, entry.pci, partial(restore_unbound, node, entry))
    except OSError as error:
        raise RebindError(TRY_AGAIN, f"the driver of vf {entry.pci} cannot be rebound", str(error)) from error
    is_back = device_returns(node, entry)
    took_s = round(time.monotonic() - began, 3)
    event = _log.bind(pci=entry.pci, pod=entry.pod, reason=reason, seconds=took_s, **fields)
    if is_back:
        event.warning("vf's driver is rebound")
    else:
        event.warning("vf's driver is rebound, but its rdma device did not come back", rdma=entry.rdma)
