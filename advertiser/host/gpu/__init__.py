"""What this host's files and libraries say of its GPUs; roots are parameters, so that trees of other hosts work.

Nothing here judges a GPU: that is `advertiser.inventory.gpu`.
"""
