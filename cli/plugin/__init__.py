"""`kubectl mooring`: reads the cluster's objects and prints what reports/ makes of them.

Nothing here changes an object, and what a report says is decided in reports/.
"""
