"""API servers, a cluster behind one, and the schedulers that are compared there."""
