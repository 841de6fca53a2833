"""Access to the API server for all programs: credentials, requests, watches, retries.

`events`, `failures` and `nesting` are pure. Nothing here depends on how programs use the objects.
"""
