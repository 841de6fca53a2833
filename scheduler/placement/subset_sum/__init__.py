"""Which VFs of one node a pod gets: free VFs, the exact packing onto PFs, the choice of VFs, other kinds beside them.

No I/O, and one node at a time: nothing here knows the cluster. Uses constraints/ only.
"""
