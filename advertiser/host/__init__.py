"""Read this host: sysfs, devlink, rtnetlink, the ledger, the offer's file, kernel events, captures.

Read failures are values or OSError. Nothing here evaluates a NIC, changes the host or uses the API server.
"""
