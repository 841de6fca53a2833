"""GPUs as the programs tell each other about them: what a node has, and which CDI devices hold which GPU.

Pure but for `cdi_folders` and `runtime_files`, which read files of the host.
"""
