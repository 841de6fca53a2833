"""Groups of pods that are decided about together: the sources read into one `Group`, and the members of each by uid.

No I/O, no nodes, no decision: cycle/group_cycle places a group, pending/ has its entry in the queue. Uses kube/ only.
"""
