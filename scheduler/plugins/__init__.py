"""One file for each plugin (NodeAffinity, InterPodAffinity, …): what it filters and scores, and how a dry run changes
it.

No I/O. Only `registry` has their order and weights. Elsewhere are SchedulingGates (pending/), PrioritySort (`queue`),
DefaultPreemption (cycle/) and DefaultBinder (server/). Uses cache/ and the packages below, never cycle/.
"""
