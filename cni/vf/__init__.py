"""What is done to this node's VFs: the ledger that says who has each, attaching and detaching, addresses from IPAM.

A VF is changed under its lock and by its ledger entry, which is written first and removed last. No command of the CNI
and no JSON: those are in the ``cmd_*`` modules and in `cni.spec`.
"""
