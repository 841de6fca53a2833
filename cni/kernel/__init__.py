"""What the kernel is asked and told: links, namespaces, RDMA devices, sysfs, drivers, inotify.

One subject a module; failures are the kernel's own, as OSError. Nothing here decides, or knows ledger or commands.
"""
