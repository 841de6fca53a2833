"""`kubectl mooring`: reads the cluster's objects and prints what reports/ makes of them.

Three commands write: `drain`, `undrain` and `connectivity test`. What a report says is decided in reports/.
"""
