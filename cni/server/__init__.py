"""What runs: the routing of a call to its command (`dispatch`), the warm server, its repairs and metrics, `show`.

This package changes VFs only through `cni.vf` and the ``cmd_*`` modules.
"""
