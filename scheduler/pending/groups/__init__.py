"""Groups that wait: which are complete, their one entry in the queue, room kept for them, Binds held for them.

No I/O, and no decision about a node: that is cycle/groups/. Uses `pending` and the packages below.
"""
