"""The CNI specification as values: a call, its configuration, errors and results.

Pure: texts and JSON in, values out. Nothing here depends on a VF's state, a file or the kernel.
"""
