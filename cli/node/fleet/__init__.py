"""`mooring-node fleet`: install this node, or remove Mooring from it, in turn with the other nodes of the cluster.

The program of the DaemonSet `mooring-node-installer`. `cli/node/plan/turns.py` decides whose turn it is.
"""
