"""Write the settings of a VF on its PF; if the PF refuses one, the ledger records that the VF is in doubt.

Some PF drivers reset the VF for a setting. Its RDMA device then disappears and comes back, and its netdev stays. iavf
removes the RDMA device first and creates it again last (iavf_reset_task in Intel's iavf, which irdma needs), and so
does hns3 (hclgevf_reset_rebuild in hns3vf/hclgevf_main.c of Linux 6.12). The VF's driver does this some time after the
PF's driver accepted the setting. So such settings are written one by one, and each write waits for the device.
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
# How long a VF may take to get its new RDMA device, in seconds: iavf polls up to 5 s until it sees the reset
# (IAVF_RESET_WAIT_DETECTED_COUNT), hns3 sleeps 0.2 s, and the RDMA driver is probed afterwards.
RESETS_S = 10.0
# The settings whose change makes the PF's driver reset the VF: __ice_set_vf_mac, ice_set_vf_port_vlan and
# ice_set_vf_trust; hclge_set_vf_mac. i40e does so too, but its VFs have no RDMA device.
_RESET_SETTINGS = {"ice": frozenset({"mac", "vlan", "qos", "trust"}), "hns3": frozenset({"mac"})}


def write(node: Node, pci: str, pf: str, vf: int, settings: VfSettings, current: VfSettings) -> None:
    """Write settings of the VF at ``pci``, which has ``current``. Raise OSError (ENODEV for a lost device)."""
    reset_names = _reset_settings(node, pci, settings, current)
    for piece in attachment.split_settings(settings) if reset_names else [settings]:
        identity = node.sysfs.rdma_identity(pci)
        write_message(node, pci, pf, vf, piece)
        if identity is not None and reset_names & piece.to_fields().keys():
            _await_device(node, pci, identity)


def write_message(node: Node, pci: str, pf: str, vf: int, settings: VfSettings) -> None:
    """Write settings of the VF at ``pci`` in one message; the caller holds the VF's lock. Raise OSError."""
    try:
        node.vf_settings.write(pf, vf, settings)
    except OSError:
        # Raise the PF's error, not that of the ledger. If the disk is full, the phase `taking` also means doubt
        # (`cni.vf.detach.detach`).
        with suppress(OSError, RecordError):
            node.ledger.put_in_doubt(pci)
        raise


def _reset_settings(node: Node, pci: str, settings: VfSettings, current: VfSettings) -> frozenset[str]:
    """Return the names of the settings that reset the VF; values that it already has do not."""
    driver = node.sysfs.driver(node.sysfs.pf_of(pci))
    changed_names = {name for name, value in settings.to_fields().items() if value != getattr(current, name)}
    return _RESET_SETTINGS.get(driver or "", frozenset()) & changed_names


def _await_device(node: Node, pci: str, old_identity: int) -> None:
    """Wait for the VF's new RDMA device; log and continue if the device with ``old_identity`` never disappears."""
    if wait_until(lambda: node.sysfs.rdma_identity(pci) not in (None, old_identity), RESETS_S):
        return
    if node.sysfs.rdma_identity(pci) is None:
        raise OSError(errno.ENODEV, f"its rdma device did not come back within {RESETS_S:.0f} s of a reset")
    _log.warning("the PF's driver did not reset the vf as expected", pci=pci)
