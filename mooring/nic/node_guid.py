"""Decide whether a VF on Ethernet has a node GUID, by which rdma_cm distinguishes hosts.

mlx5 derives it from the VF's admin MAC, and the VF reads it only when its driver is bound. In Linux 6.12 and 7.2:

- a VF that never had an admin MAC has GUID 0 (esw_vport_setup in mlx5/core/eswitch.c writes the zeros of its record).
  In 7.2 it has what the firmware gives it, perhaps 0 (there esw_vport_setup asks for MAC and GUID and writes neither);
- any write of the MAC sets it, 00:00:00:00:00:00 to 0000:00ff:fe00:0000 (node_guid_gen_from_mac there);
- mlx5_ib reads it once, at probe (init_node_data in drivers/infiniband/hw/mlx5/main.c).

All VFs of a fabric without their own GUID share these two values. A host identifies a peer's queue pair by its number
and the node GUID of its device, and different devices use the same numbers. A request with a known pair is rejected as
stale, and the connection with that pair is closed (cm_insert_remote_qpn and cm_match_req in
drivers/infiniband/core/cm.c).
"""

# The two values in the form of sysfs (node_guid_show in drivers/infiniband/core/sysfs.c).
NO_NODE_GUIDS = frozenset({"0000:0000:0000:0000", "0000:00ff:fe00:0000"})
# PF drivers that derive a VF's node GUID from its admin MAC.
_MAKE_IT_FROM_THE_MAC = frozenset({"mlx5_core"})


def is_missing(node_guid: str | None) -> bool:
    """Return whether a node GUID in sysfs means that the VF has none of its own; False if it is unknown (None)."""
    return node_guid in NO_NODE_GUIDS


def follows_mac(driver: str | None) -> bool:
    """Return whether a PF with this driver derives its VFs' node GUIDs from their admin MACs.

    Then a VF whose MAC is set to zeros loses its GUID at the next bind.
    """
    return driver in _MAKE_IT_FROM_THE_MAC
