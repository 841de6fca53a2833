"""Decide from values what to do: what ADD sets, a link's addresses, what CHECK finds, which VFs are orphans.

Pure: the code that acts on the result is in `cni.vf` and `cni.server`. No file, no link, no clock: time is an argument.
"""
