"""Decide from values: how to change CRI requests, which pod records are stale, which containers lack devices.

Pure: no files, no calls, no clock (time is an argument). The other modules of `cri_shim` act on the results.
"""
