"""Preemption by a group of pods: others are sent away only if then enough of the group fits.

`row_plan` judges one node with some members on it, `search` puts members on nodes until enough fit, `preempt` tries it
in each topology domain and on each rail, over the turns of a decision.
"""
