"""One file for each plugin (NodeAffinity, InterPodAffinity, …): what it filters, scores, and how a dry run changes it.

No I/O, and no order or choice of plugins by one of them. Uses cache/ and the rooms below, never cycle/.
"""
