"""Decide from values: what ADD sets, the addresses of a link, what CHECK reports, which VFs are orphans.

Pure: no files, no links, no clock (time is an argument). `cni.vf` and `cni.server` act on the results.
"""
