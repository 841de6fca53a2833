"""Read the counters of held VFs for Prometheus (`collector`), with a time limit for each source (`bounded_reads`)."""
