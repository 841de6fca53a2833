"""Find the devices of VFs and GPUs on this host, and containers that lack theirs."""
