"""Claims, volumes, classes and capacities, with indexes for lookups and the plans assumed for pods.

No I/O: the patches are written by server/. The filter itself is `scheduler.plugins.volume_rules.volume_binding`.
"""
