"""From what a host's files and libraries say of its GPUs to the inventory.

Pure: values in, values out. Nothing here reads a file or calls a library.
"""
