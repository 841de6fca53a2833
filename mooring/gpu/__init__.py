"""GPUs: formats of inventory, request and assignment, and which CDI devices contain which GPU.

Pure, except `cdi_folders` and `runtime_files`, which read files of the host.
"""
