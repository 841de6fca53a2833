"""The scheduler's state of the cluster: nodes as columns, assigned pods, groups, pod counts, free VFs, units, volumes.

No I/O, and no plugin's rule: plugins read it, and in a dry run move pods in it and back; the packages above change it.
Uses placement/, kube/ and constraints/.
"""
