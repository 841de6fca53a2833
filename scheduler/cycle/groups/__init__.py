"""One decision about a group: where its members are tried, in which order, on which rails, and the search beyond that.

No I/O. Members are placed by the ordinary cycle; which group is decided about, and when, is pending/groups/'s.
"""
