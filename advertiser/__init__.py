"""The advertiser: publishes what a node offers, and by `init` makes the node's VFs.

Each room uses only those below it: publish/ and init/, host/, formats/, inventory/. It never imports another program.
"""
