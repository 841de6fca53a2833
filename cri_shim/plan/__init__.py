"""Decide from values: what two CRI requests become, which pod records are stale, which containers lack their devices.

Pure: the code that acts on the result lies in `cri_shim`. No file, no call, no clock: time is an argument.
"""
