"""mooring-node hardware-test: what a real NIC does, as far as no source can tell; plan/ is pure.

The programs are called as commands (mooring-advertiser, mooring-cni). Without --vfs nothing is changed.
"""
