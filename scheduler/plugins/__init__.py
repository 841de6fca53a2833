"""One file for each plugin (NodeAffinity, InterPodAffinity, …): what it filters, scores, and how a dry run changes it.

No I/O. `registry` alone holds their order and weights. Uses cache/ and the rooms below, never cycle/.
"""
