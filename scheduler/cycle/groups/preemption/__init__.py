"""Preemption by a group of pods: others are preempted only if then enough of the group fits. No I/O.

`preempt` starts a search and checks its result. `victim_plan` places the members and chooses the victims. Nothing is in
the live cache.
"""
