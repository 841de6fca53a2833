"""Run `serve` and `once`: scans, watches of the API server, patches, Events, metrics and HTTP pages.

`host` reads the host, and `inventory` decides what is on offer. Nothing here changes the host.
"""
