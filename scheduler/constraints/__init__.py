"""Kinds of resource besides VFs: the protocol that plug-ins implement, and their isolation from the scheduler.

No I/O. The protocol is public: its import path and names are stable. Uses no other package; server/ loads the plug-ins.
"""
