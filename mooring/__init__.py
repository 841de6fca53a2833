"""The contract of Mooring: the documents that its programs exchange, in three annotations and two records."""
