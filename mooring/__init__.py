"""The contract of Mooring: what its programs tell each other, in three annotations and two records."""
