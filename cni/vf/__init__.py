"""Work on this node's VFs: the ledger, attaching and detaching VFs, and their addresses from IPAM.

A VF changes only under its lock and according to its ledger entry, which is written first and removed last. The CNI
commands and their JSON are in the ``cmd_*`` modules and in `cni.spec`.
"""
