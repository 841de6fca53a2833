"""One decision: the scheduling cycle, scores kept by signature, preemption, dry runs and disruption budgets; groups.

No I/O, and no rule about nodes: those are in plugins/. Uses plugins/ and the packages below, never pending/ or state/.
"""
