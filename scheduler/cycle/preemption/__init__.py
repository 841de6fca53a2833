"""DefaultPreemption: victims for a pod that fits nowhere, and disruption budgets.

No I/O: the result is a value, and server/ deletes the victims. The cycle chooses the nodes to search.
"""
