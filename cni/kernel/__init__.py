"""Read and change kernel state: links, namespaces, RDMA devices, sysfs, drivers, inotify.

One subject a module; failures are the kernel's own, as OSError. No module here decides anything, or uses the ledger or
the commands.
"""
