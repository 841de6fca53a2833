"""Pods that wait for a node: their results, nominations, requeue hints, and the volumes that they wait for.

No I/O, and no decision about a node: that is cycle/. Uses cycle/ and the packages below, never extender/ or state/.
"""
