"""`kubectl mooring assess`: what goes wrong with the VFs of a cluster, and what Mooring would change. It only reads.

`collect` reads the API and `node_archives` the captures of nodes; both make a `snapshot`. `captured_tree` is a tree in memory. The other modules are pure:
they derive findings, the scheduler's decisions and the report from it.
"""
