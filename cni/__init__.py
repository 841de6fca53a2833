"""The CNI plugin: one ``cmd_*`` module for each command of the specification; `server` routes calls to them.

The layers, from the top: `server`, the ``cmd_*`` modules, `vf`, `kernel`, `plan`, `spec`. Each layer uses only those
below it. `plan` and `spec` are pure.
"""
