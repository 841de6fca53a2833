"""What `mooring-node` needs on a host: files, services and settings as values, and the steps that make them.

Pure: a host as a value in, the wanted state out. Nothing here reads or changes a host.
"""
