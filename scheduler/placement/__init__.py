"""Choose the VFs of one node for a pod, and units of other kinds with them.

No I/O, and one node at a time: no module here reads the cluster. Uses constraints/ and kube/ only.
"""
