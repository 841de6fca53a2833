"""What runs: a call's way to its command (`dispatch`), the warm server, its repairs and metrics, the ledger shown.

No VF is changed here but through `cni.vf` and the ``cmd_*`` modules.
"""
