"""DefaultPreemption: which pods must go for a pod that fits nowhere; disruption budgets.

No I/O: what is found is a value, and server/ deletes the victims. Which nodes are asked about is the cycle's.
"""
