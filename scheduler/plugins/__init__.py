"""The plugins (NodeAffinity, InterPodAffinity, …): what each filters and scores, and its part in a dry run.

No I/O. Only `registry` has their order and weights. Elsewhere are SchedulingGates (pending/), PrioritySort (`queue`),
DefaultPreemption (cycle/) and DefaultBinder (server/). Uses cache/ and the packages below, never cycle/.
"""
