"""Groups of pods that are scheduled together: the sources read into one `Group`, and the members of each by uid.

No I/O, no nodes, no decision: cycle/groups/ places a group, pending/groups/ queues it. Uses kube/ only.
"""
