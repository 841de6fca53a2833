"""One decision about a group: the domains, orders and rails in which its members are tried, and the search for victims.

No I/O. The ordinary cycle places the members; pending/groups/ decides which group is scheduled, and when.
"""
