"""The formats that the advertiser reads and writes: pods and the node, Events, node status, /getpfs, captured.json.

Pure: converts texts and objects to values and back. Decides nothing, and does no I/O.
"""
