"""Groups that wait: which are complete, their one entry in the queue, room reserved for them, and Binds held for them.

No I/O, and no decision about a node: that is cycle/groups/. Uses `pending` and the packages below.
"""
