"""The way to the API server for all programs: access, requests, watches, retries.

`events`, `failures` and `nesting` are pure. Nothing here depends on what a program does with an object.
"""
