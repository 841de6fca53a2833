"""Work on this node's VFs: the ledger of their holders, attaching and detaching, addresses from IPAM.

A VF is changed under its lock and by its ledger entry, which is written first and removed last. CNI commands and JSON
are not here: those are in the ``cmd_*`` modules and in `cni.spec`.
"""
