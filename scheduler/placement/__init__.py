"""Choose the VFs of one node for a pod: free VFs, the exact packing onto PFs, the choice of VFs, and other kinds with
them.

No I/O, and one node at a time: no module here reads the cluster. Uses constraints/ only.
"""
