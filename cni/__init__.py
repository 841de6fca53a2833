"""The CNI plugin: a ``cmd_*`` module for each command of the specification; `server` routes each call to its module.

Layers, each uses those below it: `server`, the ``cmd_*``, `vf`, `kernel`, `plan`, `spec`. `plan` and `spec` are pure.
"""
