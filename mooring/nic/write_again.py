"""Write the settings that confine a VF again, whatever its PF reports: after a refusal the report may be wrong.

A PF's driver remembers what it was asked for, and reports that; what the NIC does is the firmware's. Where the firmware
refuses, the two may differ. Linux 6.12 and 7.2, drivers/net/ethernet:

- mlx5: each write of MAC, VLAN or spoof check removes the VF's ingress ACL, by which alone spoof check is in force, and
  makes it again. If that is refused, the write fails, MAC and VLAN read as the new ones, spoof check reads as before,
  and nothing is checked (esw_acl_ingress_lgcy_setup, called by mlx5_esw_set_vport_mac_locked,
  __mlx5_eswitch_set_vport_vlan and mlx5_eswitch_set_vport_spoofchk). A VLAN has an egress ACL likewise.
- i40e: spoof check reads as the value that was refused, and that value is not written again
  (i40e_ndo_set_vf_spoofchk). A VLAN likewise (i40e_ndo_set_vf_port_vlan compares with vsi->info.pvid).
- hns3, ice: spoof check is two commands. After a refusal of the second the first is in force, it reads as before, and
  that value is not written again (hclge_set_vf_spoofchk, ice_set_vf_spoofchk). hns3 sets a VLAN in two steps too
  (hclge_update_port_base_vlan_cfg).
- bnxt_en: a MAC that was refused reads as set (bnxt_set_vf_mac). ixgbe: it reads as none (ixgbe_set_vf_mac).
- IPoIB: a VF's node GUID is set before its port GUID, which nobody can read (mlx5_ib_set_vf_guid).

Rates and link state do not change what confines a VF. Trust returns 0 whatever the firmware says
(mlx5_eswitch_set_vport_trust, bnxt_set_vf_trust, ice_set_vf_trust): no write can tell.
"""

import errno
from collections.abc import Callable, Collection, Iterator

from mooring.nic.refusals import NO_SUCH_SETTING
from mooring.nic.settings import VfSettings

# Of spoof check off: a PF that lacks it, or may not turn it off (EPERM of mlx5_esw_allowed), has changed nothing. After
# any other refusal hns3 and ice still remember "on", and the next "on" is skipped and proves nothing.
OFF_IS_NOT_TAKEN = NO_SUCH_SETTING | {errno.EPERM}


def write_again(write: Callable[[VfSettings], None], settings: VfSettings, refused: VfSettings | None = None) -> None:
    """Write MAC, VLAN, spoof check and GUID of ``settings``; raise the first OSError after all were tried.

    ``refused`` is what may be in force instead. A setting that the NIC lacks was never changed.
    """
    failures = []
    for piece, is_needed in _pieces(settings, refused or VfSettings()):
        try:
            write(piece)
        except OSError as failed:
            if is_needed and failed.errno not in _harmless(piece):
                failures.append(failed)
    if failures:
        raise failures[0]


def _harmless(piece: VfSettings) -> Collection[int | None]:
    """Return with which errno a refused setting was surely never changed."""
    if piece.spoofchk is None:
        return NO_SUCH_SETTING
    return () if piece.spoofchk else OFF_IS_NOT_TAKEN


def _pieces(settings: VfSettings, refused: VfSettings) -> Iterator[tuple[VfSettings, bool]]:
    """Yield what to write, and whether it must succeed.

    Another value first: some drivers skip the one that they remember. Spoof check off alone is no rule to be without.
    """
    if settings.mac is not None:
        yield VfSettings(mac=settings.mac), True
    if settings.vlan is not None:
        if refused.vlan not in (None, settings.vlan):
            yield VfSettings(vlan=refused.vlan, qos=refused.qos), False
        yield VfSettings(vlan=settings.vlan, qos=settings.qos), True
    if settings.spoofchk is not None:
        yield VfSettings(spoofchk=False), settings.spoofchk
    if settings.spoofchk:
        yield VfSettings(spoofchk=True), True
    if settings.guid is not None:
        yield VfSettings(guid=settings.guid), True
