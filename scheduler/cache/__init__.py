"""The cluster as the scheduler knows it: nodes as columns, assigned pods, groups, pod counts, free VFs, units, volumes.

No I/O, and no plugin's rule: plugins read the cache, state/ and cycle/ change it. Uses placement/, kube/ and
constraints/.
"""
