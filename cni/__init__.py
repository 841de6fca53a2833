"""The CNI plugin: a ``cmd_*`` module for each command of the specification is the door; `server` answers calls by them.

Floors, each uses those below it: `server`, the ``cmd_*``, `vf`, `kernel`, `plan`, `spec`. `plan` and `spec` are pure.
"""
