"""Preemption by a group of pods: others are preempted only if then enough of the group fits. No I/O.

`preempt` starts and ends a search. `least_loss` puts members on a snapshot with the smallest loss, `row_victims` finds
the victims on a node, and `reprieve` lets victims stay. Nothing is in the live cache.
"""
