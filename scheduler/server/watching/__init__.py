"""How objects come in: a list and watch for each kind, and the inbox where their events wait for the loop.

What an event means is decided in `scheduler.state`, not here.
"""
