"""Devices of VFs and GPUs on this host, and the containers that lack theirs."""
