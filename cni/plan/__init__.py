"""What is to be done, decided from values: what ADD sets, a link's addresses, what CHECK finds, which VFs are orphans.

Pure: whoever acts on it is in `cni.vf` and `cni.server`. No file, no link, no clock: time is an argument.
"""
