"""Kinds of resource besides VFs, isolated from the scheduler. No I/O. The protocol is public: its names are stable."""
