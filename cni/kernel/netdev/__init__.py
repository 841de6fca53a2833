"""What can be set on a netdev and stays when it moves to another namespace: ethtool's settings, XDP, tcx, alias, group.

Reads and restores it; failures are OSError. What of it a pod has left, and what then, is `cni.vf.detach.left_behind`'s.
"""
