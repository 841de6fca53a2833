"""Preemption by a group of pods: others are preempted only if then enough of the group fits. No I/O.

`preempt` starts and ends a search, and `victim_search` tries each domain and choice of networks. `least_loss` puts
members on a snapshot with the smallest loss, and `reprieve` lets victims stay. Nothing is in the live cache.
"""
