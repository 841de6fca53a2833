"""Preemption by a group of pods: others are preempted only if then enough of the group fits. No I/O.

`preempt` starts and ends a search, and lets victims stay that are not necessary. `least_loss` finds the victims and
places the members. Nothing is in the live cache.
"""
