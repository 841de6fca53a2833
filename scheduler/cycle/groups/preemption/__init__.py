"""Preemption by a group of pods: others are sent away only if then enough of the group fits. No I/O.

`preempt` begins and ends a search, `victim_search` tries each domain and choice of networks. `least_loss` puts members
on a snapshot where the least is lost, `reprieve` lets victims stay. Nothing is in the live cache.
"""
