"""The tools of a person: plugin/ is `kubectl mooring`, node/ is `mooring-node`.

They take from the scheduler what decides, and never what acts.
"""
