"""Preemption by a group of pods: others are sent away only if then enough of the group fits.

`row_plan` judges a node with some members on it, `search` puts members on nodes until enough fit, `preempt` tries it in
each topology domain and on each rail. No I/O, and nothing stays assumed: a plan is a value.
"""
