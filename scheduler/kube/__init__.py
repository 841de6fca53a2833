"""Kubernetes objects as the scheduler reads them: pods, nodes, storage, quantities, selectors, affinity terms.

No I/O, no use of nodes, no decision: only what follows from the objects themselves. Uses constraints/ only.
"""
