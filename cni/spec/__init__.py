"""What the CNI specification says: a call, its configuration, errors and results, as values.

Pure: texts and JSON in, values out. Nothing here knows a VF's state, a file or the kernel.
"""
