"""The node GUID of a VF on Ethernet, by which rdma_cm tells hosts apart: which values mean that the VF has none.

mlx5 derives it from the VF's admin MAC, and the VF reads it only while its driver is bound. Of Linux 6.12 and 7.2:

- a VF that never had an admin MAC has GUID 0 (esw_vport_setup in mlx5/core/eswitch.c writes the zeros of its record).
  In 7.2 it has what the firmware gives it, perhaps 0 (there esw_vport_setup asks for MAC and GUID and writes neither);
- any write of the MAC sets it, 00:00:00:00:00:00 to 0000:00ff:fe00:0000 (node_guid_gen_from_mac there);
- mlx5_ib reads it once, at probe (init_node_data in drivers/infiniband/hw/mlx5/main.c).

All such VFs of a fabric share these two values. A host knows a peer's queue pair by its number and the node GUID of its
device, and numbers repeat from device to device. A request with a pair that is known is rejected as stale, and the
connection that has the pair is ended (cm_insert_remote_qpn and cm_match_req in drivers/infiniband/core/cm.c).
"""

# As node_guid_show in drivers/infiniband/core/sysfs.c writes them.
NO_NODE_GUIDS = frozenset({"0000:0000:0000:0000", "0000:00ff:fe00:0000"})
# The drivers of PFs that make a VF's node GUID from its admin MAC.
_MAKE_IT_FROM_THE_MAC = frozenset({"mlx5_core"})


def is_missing(node_guid: str | None) -> bool:
    """Return whether a node GUID, as sysfs shows it, is one that a VF has before it has its own; None is unknown."""
    return node_guid in NO_NODE_GUIDS


def follows_mac(driver: str | None) -> bool:
    """Return whether a PF with this driver makes its VFs' node GUIDs from their admin MACs.

    Taking the MAC away, by setting it to zeros, then takes the GUID away at the next bind.
    """
    return driver in _MAKE_IT_FROM_THE_MAC
