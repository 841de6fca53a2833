"""What this host says, as read: sysfs, devlink, rtnetlink, the ledger, the offer's file, kernel events, captures.

Failures to read are values or OSError. Nothing here judges a NIC, changes the host or knows the API server.
"""
