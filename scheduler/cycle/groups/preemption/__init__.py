"""Preemption by a group of pods: others are preempted only if then enough of the group fits. No I/O.

`preempt` starts and ends a search. `least_loss` puts members on a snapshot with the smallest loss, and then lets
victims stay. `row_victims` finds the victims on a node. Nothing is in the live cache.
"""
