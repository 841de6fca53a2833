"""The scheduler, in rooms: `__main__` and server/ do all I/O, the rooms below them take values and return decisions.

A room uses only those below it: a contract in pyproject.toml holds their order.
"""
