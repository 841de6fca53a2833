#!/bin/sh
# firmware.sh [SCRIPT]: what the modelled chip has and must be as before, edited by a script for sed: vports of the first
# PF, flow tables with their entries, flow groups, scheduling elements. Nothing on other NICs.
set -e
[ -e /proc/mlx5chip ] || exit 0
# ADD enrols all VFs of a PF in rate scheduling, where they stay with weight 0 below a root.
vports=$(sed 's/weight -1 /weight 0 /' /sys/module/mlx5chip/parameters/vports)
# Left out: entries for the addresses that a netdev has, and for groups. They follow its lists, and only from the first
# time that it is up (mlx5e_fs_set_rx_mode_work, esw_update_vport_addr_list).
objects=$(sort /proc/mlx5chip)
addresses=$(cat /sys/class/net/*/address | sed 's/^/dmac /')
objects=$(echo "$objects" | sed 's/roots 0/roots 1/; /dmac .[13579bdf]:/d' | grep -vF -e "$addresses")
printf '%s\n' "$vports" "$objects" | sed "${1:-}"
