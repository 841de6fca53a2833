"""The advertiser: publishes a node's PFs and VFs, and with `init` creates the VFs.

Its packages are layers: publish/ and init/ import host/, host/ imports formats/, formats/ imports inventory/. None
imports another program.
"""
