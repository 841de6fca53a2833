"""The scheduler, one package per subject, in layers: `__main__` and server/ do all I/O; the others take values and
return decisions.

A package uses only those below it: a contract in pyproject.toml checks their order.
"""
