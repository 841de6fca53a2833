"""Serve HTTP to unauthenticated clients, with limits of connections, time and memory.

`connections` accepts and limits connections. `application` serves an aiohttp application on them, `metrics_page` one
page from a separate thread, for programs without aiohttp. `recent` shares an answer between callers.
"""
