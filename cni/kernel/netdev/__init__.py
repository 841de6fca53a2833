"""Read and restore the netdev settings that survive a move to another namespace: ethtool, XDP, tcx, alias, group.

Failures are OSError. `cni.vf.detach.left_behind` decides what to do with settings that a pod left.
"""
