"""Bypass a failed shim with a link in place of its socket, and end the bypass once the shim serves again.

It must work if nothing of the shim works, so its modules use the standard library and no configuration file. Only the
check for containers without devices needs more, and runs in a separate process.
"""
