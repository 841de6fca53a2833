"""What a pod's rules select: label selectors, node selectors, affinity terms, topology spread constraints.

No I/O, and no object is looked up: which pods or nodes match is counted and judged in cache/ and plugins/.
"""
