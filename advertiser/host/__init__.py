"""Read this host: sysfs, devlink, rtnetlink, the ledger, the offer's file, kernel events, captures.

Failures to read are values or OSError. Nothing here judges a NIC, changes the host or depends on the API server.
"""
