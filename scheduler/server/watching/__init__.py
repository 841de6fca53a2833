"""Receive objects: a list and watch for each kind, and the inbox where their events wait for the loop.

`scheduler.state` decides what an event means, not this package.
"""
