"""Write the settings that isolate a VF again, whatever its PF reports: after an error the report can be wrong.

A PF's driver stores and reports the requested value; the firmware decides what the NIC does. If the firmware rejects a
command, the two can differ. In Linux 6.12 and 7.2, drivers/net/ethernet:

- mlx5: each write of MAC, VLAN or spoof check removes and recreates the VF's ingress ACL, which implements spoof check.
  If recreating fails, the write fails, MAC and VLAN read as the new values, spoof check reads as before, and nothing is
  checked (esw_acl_ingress_lgcy_setup, called by mlx5_esw_set_vport_mac_locked, __mlx5_eswitch_set_vport_vlan and
  mlx5_eswitch_set_vport_spoofchk). The same holds for the egress ACL of a VLAN.
- i40e: spoof check reads as the rejected value, and writing that value again is skipped (i40e_ndo_set_vf_spoofchk). The
  same holds for a VLAN (i40e_ndo_set_vf_port_vlan compares with vsi->info.pvid).
- hns3, ice: spoof check needs two commands. If the second one fails, the first one is in force, spoof check reads as
  before, and writing that value is skipped (hclge_set_vf_spoofchk, ice_set_vf_spoofchk). hns3 also sets a VLAN in two
  steps (hclge_update_port_base_vlan_cfg).
- bnxt_en: a rejected MAC reads as set (bnxt_set_vf_mac). ixgbe: it reads as none (ixgbe_set_vf_mac).
- IPoIB: a VF's node GUID is set before its port GUID, which cannot be read (mlx5_ib_set_vf_guid).

Rates and link state do not isolate a VF. Writing trust returns 0 whatever the firmware does
(mlx5_eswitch_set_vport_trust, bnxt_set_vf_trust, ice_set_vf_trust), so a write proves nothing.
"""

import errno
from collections.abc import Callable, Collection, Iterator

from mooring.nic.refusals import NO_SUCH_SETTING
from mooring.nic.settings import VfSettings

# Errors of turning spoof check off after which nothing has changed: the PF lacks the setting or may not change it
# (EPERM of mlx5_esw_allowed). After other errors hns3 and ice still store "on", so the next "on" is skipped and proves
# nothing.
UNCHANGED_ERRORS = NO_SUCH_SETTING | {errno.EPERM}


def write_again(
    write: Callable[[VfSettings], None], settings: VfSettings, possible_values: VfSettings | None = None
) -> None:
    """Write MAC, VLAN, spoof check and GUID of ``settings``; try all, then raise the first OSError.

    ``possible_values`` are the values that may be in force instead. Settings that the NIC lacks are ignored.
    """
    failures = []
    for piece, is_needed in _pieces(settings, possible_values or VfSettings()):
        try:
            write(piece)
        except OSError as error:
            if is_needed and error.errno not in _harmless(piece):
                failures.append(error)
    if failures:
        raise failures[0]


def _harmless(piece: VfSettings) -> Collection[int | None]:
    """Return the errnos that mean that a setting was certainly not changed."""
    if piece.spoofchk is None:
        return NO_SUCH_SETTING
    return () if piece.spoofchk else UNCHANGED_ERRORS


def _pieces(settings: VfSettings, possible_values: VfSettings) -> Iterator[tuple[VfSettings, bool]]:
    """Yield the settings to write, and whether the write must succeed.

    Another value is written first, because some drivers skip a value that they have stored. Spoof check off need not
    succeed, because it does not isolate.
    """
    if settings.mac is not None:
        yield VfSettings(mac=settings.mac), True
    if settings.vlan is not None:
        if possible_values.vlan not in (None, settings.vlan):
            yield VfSettings(vlan=possible_values.vlan, qos=possible_values.qos), False
        yield VfSettings(vlan=settings.vlan, qos=settings.qos), True
    if settings.spoofchk is not None:
        yield VfSettings(spoofchk=False), settings.spoofchk
    if settings.spoofchk:
        yield VfSettings(spoofchk=True), True
    if settings.guid is not None:
        yield VfSettings(guid=settings.guid), True
