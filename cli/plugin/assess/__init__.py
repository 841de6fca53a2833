"""`kubectl mooring assess`: what goes wrong with the VFs of a cluster, and what Mooring would change. It only reads.

`collect` reads the API and `node_archives` the captures of nodes, as trees in memory. Both make a `snapshot`, which
`share` can write without identities. The other modules are pure: they derive findings, decisions and a report from it.
"""
