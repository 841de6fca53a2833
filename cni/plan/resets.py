"""Tell what a PF has forgotten of a held VF's settings from what somebody has changed.

A reload of mlx5's driver or a firmware reset forgets rates and link state of all VFs while pods hold them
(mlx5_esw_qos_vport_disable clears vport->qos, esw_legacy_enable sets every link state to AUTO; in
drivers/net/ethernet/mellanox/mlx5/core/esw of Linux 6.12). What was forgotten reads as on
a VF just made. Any other value was set by somebody, and is left: a person may limit a VF for an hour. On InfiniBand the
driver sets link state and GUIDs again by itself (sriov_restore_guids in mlx5/core/sriov.c).
"""

from dataclasses import replace

from cni.plan.attachment import ATTRIBUTES, NO_MAC, differences
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry

# A VF just made, as drivers of Ethernet PFs report it.
_FRESH = VfSettings(0, 0, NO_MAC, 0, 0, trust=False, spoofchk=False, link_state="auto")


def expected(entry: LedgerEntry) -> VfSettings:
    """Return the settings that a held VF has: what the pod's ADD set, and the link state that it found.

    A link state that `init` or a person gave the VF is lost with a reload as one that the pod requested. On InfiniBand,
    where VFs have no MAC, the driver keeps it.
    """
    before = entry.original.settings
    if entry.set.link_state is not None or before.mac is None:
        return entry.set
    return replace(entry.set, link_state=before.link_state)


def forgotten(wanted: VfSettings, found: VfSettings) -> VfSettings:
    """Return the settings to set again: those of each netlink attribute that reads as a fresh VF's, and is not wanted.

    An attribute of which one half was set by somebody is left whole.
    """
    again: dict[str, object] = {}
    for attribute in ATTRIBUTES:
        wishes = {name: value for name in attribute if (value := getattr(wanted, name)) is not None}
        reported = {name: value for name in attribute if (value := getattr(found, name)) is not None}
        is_fresh = wishes.keys() <= reported.keys() and all(
            value == getattr(_FRESH, name) for name, value in reported.items()
        )
        if is_fresh and any(value != reported[name] for name, value in wishes.items()):
            again |= wishes
    return replace(VfSettings(), **again)  # type: ignore[arg-type]


def changed(wanted: VfSettings, found: VfSettings) -> list[str]:
    """Name each setting that somebody has changed: it differs and was not forgotten."""
    lost = forgotten(wanted, found).to_fields()
    left = {name: value for name, value in wanted.to_fields().items() if name not in lost}
    return differences(replace(VfSettings(), **left), found)  # type: ignore[arg-type]
