"""Rules about what Mooring assigns: VFs, GPUs and units of other kinds, and whether a node's programs handle them."""
