"""Run calls and the server: `dispatch` routes a call to its command; the server, its repairs and metrics; `show`.

This package changes VFs only through `cni.vf` and the ``cmd_*`` modules.
"""
