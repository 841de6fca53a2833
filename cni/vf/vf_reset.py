"""Write a VF's settings on its PF, and enter in the ledger if one is refused: then the VF's state is in doubt.

Some PFs' drivers reset the VF for a setting: its RDMA device vanishes and comes back.
The netdev stays. iavf removes the RDMA device first and makes it again last (iavf_reset_task in Intel's iavf, which
irdma needs), hns3 does the same (hclgevf_reset_rebuild in hns3vf/hclgevf_main.c of Linux 6.12). The driver of the VF
does so in its own time, after the PF's has taken the setting. So such settings are written one by one, each after the
device of the one before is back.
"""

import errno
from contextlib import suppress

import structlog

from cni.kernel.wait import wait_until
from cni.plan import attachment
from cni.vf.node import Node
from mooring.errors import RecordError
from mooring.nic.settings import VfSettings

_log = structlog.get_logger()
# How long a VF may take until its RDMA device is another one, in seconds: iavf polls up to 5 s until it sees the reset
# (IAVF_RESET_WAIT_DETECTED_COUNT), hns3 sleeps 0.2 s, and the RDMA driver is probed afterwards.
RESETS_S = 10.0
# Settings whose change makes a PF's driver reset the VF: __ice_set_vf_mac, ice_set_vf_port_vlan and ice_set_vf_trust;
# hclge_set_vf_mac. i40e does so too, but its VFs have no RDMA device.
_RESETTING = {"ice": frozenset({"mac", "vlan", "qos", "trust"}), "hns3": frozenset({"mac"})}


def write(node: Node, pci: str, pf: str, vf: int, settings: VfSettings, found: VfSettings) -> None:
    """Write settings of the VF at ``pci``; ``found`` are the present ones. Raise OSError, ENODEV for a lost device."""
    resetting = _resetting(node, pci, settings, found)
    for piece in attachment.one_by_one(settings) if resetting else [settings]:
        before = node.sysfs.rdma_identity(pci)
        write_at_once(node, pci, pf, vf, piece)
        if before is not None and resetting & piece.to_fields().keys():
            _await_device(node, pci, before)


def write_at_once(node: Node, pci: str, pf: str, vf: int, settings: VfSettings) -> None:
    """Write settings of the VF at ``pci`` in one message; the caller holds the VF's lock. Raise OSError."""
    try:
        node.vf_settings.write(pf, vf, settings)
    except OSError:
        # Its error is the one that counts; on a full disk the phase tells (`cni.vf.detach.detach`).
        with suppress(OSError, RecordError):
            node.ledger.put_in_doubt(pci)
        raise


def _resetting(node: Node, pci: str, settings: VfSettings, found: VfSettings) -> frozenset[str]:
    """Return which of ``settings`` reset the VF: a value that it has already does not."""
    driver = node.sysfs.driver(node.sysfs.pf_of(pci))
    changed = {name for name, value in settings.to_fields().items() if value != getattr(found, name)}
    return _RESETTING.get(driver or "", frozenset()) & changed


def _await_device(node: Node, pci: str, before: int) -> None:
    """Wait until another RDMA device is there; go on with the one before if it never goes away."""
    if wait_until(lambda: node.sysfs.rdma_identity(pci) not in (None, before), RESETS_S):
        return
    if node.sysfs.rdma_identity(pci) is None:
        raise OSError(errno.ENODEV, f"its rdma device did not come back within {RESETS_S:.0f} s of a reset")
    _log.warning("the PF's driver did not reset the vf as expected", pci=pci)
