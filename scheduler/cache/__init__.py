"""The cluster as the scheduler knows it: nodes as columns, assigned pods, groups, pod counts, free VFs, units, volumes.

No I/O, and no plugin's rule: plugins read it, and in a dry run move pods in it and back; the rooms above them change
it. Uses placement/, kube/ and constraints/.
"""
