"""How the programs serve HTTP to clients that nobody has authenticated: bounded in connections, time and memory.

`connections` accepts and limits; `application` serves an aiohttp application behind it, `metrics_page` one page from a
thread of its own, for programs without aiohttp; `recent` shares an answer between callers.
"""
