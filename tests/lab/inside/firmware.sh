#!/bin/sh
# What the modelled chip has and must be as before: vports of the first PF, flow tables with their entries, flow groups,
# scheduling elements. Nothing on other NICs.
[ -e /proc/mlx5chip ] || exit 0
# ADD enrols all VFs of a PF in rate scheduling, where they stay with weight 0 below a root.
sed 's/weight -1 /weight 0 /' /sys/module/mlx5chip/parameters/vports
# Left out: entries for the addresses that a netdev has, and for groups. They follow its lists, and only from the first
# time that it is up (mlx5e_fs_set_rx_mode_work, esw_update_vport_addr_list).
sort /proc/mlx5chip | sed 's/roots 0/roots 1/; /dmac .[13579bdf]:/d' |
  grep -vF -e "$(sed 's/^/dmac /' /sys/class/net/*/address)"
