"""`mooring-node`: install, upgrade, check and remove Mooring's programs on a node, and test a NIC (hardware/).

The modules here read and change the host; plan/ decides which files, services and settings it should have.
"""
