"""The cluster as the scheduler knows it: nodes as columns, assigned pods, pod counts, free VFs and units, volumes.

No I/O, and no plugin's rule: plugins read the cache, state/ and cycle/ change it. Uses placement/, kube/,
constraints/ and `queue`.
"""
