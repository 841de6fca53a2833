"""Attack a cluster as a tenant, a node or a neighbour on the network can, and measure what others notice.

`python -m bench.hostile` runs each attack of `attacks/` against the real programs. An attack is one function with the
decorator `attack`; a new file of attacks is imported by `attacks/__init__.py`.
"""
