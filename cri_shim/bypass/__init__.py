"""Lead the kubelet past a shim that has failed, by a link in the place of its socket, and back once it serves again.

It is to work when nothing of the shim does: the modules here use the standard library and no configuration file. Only
the check for containers without devices, a process of its own, needs more.
"""
