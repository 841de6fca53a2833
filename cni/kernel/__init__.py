"""Read and change kernel state: links, namespaces, RDMA devices, sysfs, drivers, inotify.

Each module has one subject and raises the kernel's errors as OSError. No module makes decisions, or uses the ledger or
the CNI commands.
"""
