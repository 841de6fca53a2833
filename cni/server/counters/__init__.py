"""Counters of held VFs for Prometheus: who reads them (`collector`), and how long that may take (`bounded_reads`)."""
