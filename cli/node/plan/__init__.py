"""Plan what `mooring-node` needs on a host: files, services and settings, and the steps that make them.

Pure: takes a host as a value and returns changes. Nothing here reads or changes a host.
"""
