"""Kinds of resource besides VFs, isolated from the scheduler. The protocol is public: its names are stable."""
