"""A support bundle: an archive of what `kubectl mooring` reads of a cluster, without secrets; and its reading again.

`redact` decides what is removed, `archive` writes and reads the file, `collect` reads the cluster, and `source` answers
from the file as the cluster's API server would. Nothing here writes to a cluster.
"""
