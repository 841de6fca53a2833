"""Kinds of resource besides VFs: the protocol that plug-ins implement, and their isolation from the scheduler.

No I/O. The protocol is public: its import path and names stay. Uses no other room; server/ loads the plug-ins.
"""
