"""Distinguish the settings of a held VF that its PF lost from those that another program changed.

A reload of mlx5's driver or a firmware reset loses the rates and the link state of all VFs while pods hold them
(mlx5_esw_qos_vport_disable clears vport->qos, esw_legacy_enable sets every link state to AUTO; in
drivers/net/ethernet/mellanox/mlx5/core/esw of Linux 6.12 and 7.2). A lost setting reads as on a new VF. Any other value
was set by a person or a program, and is kept: a person may limit a VF for an hour. On InfiniBand the driver restores
link state and GUIDs by itself (sriov_restore_guids in mlx5/core/sriov.c).
"""

from dataclasses import replace

from cni.plan.attachment import ATTRIBUTES, NO_MAC, differences
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry

# A new VF, as the drivers of Ethernet PFs report it.
_FRESH = VfSettings(0, 0, NO_MAC, 0, 0, trust=False, spoofchk=False, link_state="auto")


def expected_settings(entry: LedgerEntry) -> VfSettings:
    """Return the settings that a held VF must have: those that ADD set, and the link state that ADD found.

    A reload also loses a link state that `init` or a person set. On InfiniBand, where VFs have no MAC, the driver keeps
    the link state.
    """
    original = entry.original.settings
    if entry.set.link_state is not None or original.mac is None:
        return entry.set
    return replace(entry.set, link_state=original.link_state)


def lost_settings(target: VfSettings, current: VfSettings) -> VfSettings:
    """Return the lost settings: those of each netlink attribute that reads as on a new VF but should not.

    If only one setting of an attribute reads so, somebody else set the attribute, and it is not returned.
    """
    fields: dict[str, object] = {}
    for attribute in ATTRIBUTES:
        target_values = {name: value for name in attribute if (value := getattr(target, name)) is not None}
        current_values = {name: value for name in attribute if (value := getattr(current, name)) is not None}
        is_fresh = target_values.keys() <= current_values.keys() and all(
            value == getattr(_FRESH, name) for name, value in current_values.items()
        )
        if is_fresh and any(value != current_values[name] for name, value in target_values.items()):
            fields |= target_values
    return replace(VfSettings(), **fields)  # type: ignore[arg-type]


def describe_changes(target: VfSettings, current: VfSettings) -> list[str]:
    """Describe each setting that differs from ``target`` and was not lost: another program changed it."""
    lost_fields = lost_settings(target, current).to_fields()
    rest = {name: value for name, value in target.to_fields().items() if name not in lost_fields}
    return differences(replace(VfSettings(), **rest), current)  # type: ignore[arg-type]
