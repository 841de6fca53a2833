"""`mooring-node`: installs, upgrades, checks and removes the node's part, and tests a NIC (hardware/).

The modules here read and change the host; plan/ decides which files, services and settings it should have.
"""
