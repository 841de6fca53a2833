"""Read facts about this host's GPUs from files and libraries; roots are parameters, so other hosts' trees work, too.

Nothing here evaluates a GPU: `advertiser.inventory.gpu` does.
"""
