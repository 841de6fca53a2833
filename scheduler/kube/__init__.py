"""Kubernetes objects as the scheduler reads them: pods, nodes, storage, quantities, selectors, affinity terms.

No I/O, and no state of the cluster: only what follows from one object. Uses constraints/ only.
"""
