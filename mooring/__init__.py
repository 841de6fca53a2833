"""Code that Mooring's programs share: documents in annotations, records on a node, and access to the API server."""
