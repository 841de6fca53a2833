"""What `serve` and `once` run: scans, watches of the API server, patches, Events, metrics and HTTP pages.

Nothing here reads the host itself (`host`), decides what is on offer (`inventory`), or changes the host.
"""
