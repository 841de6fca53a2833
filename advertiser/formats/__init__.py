"""The formats that the advertiser reads and writes: pods and the node, Events, node status, /getpfs, captured.json.

Pure: texts and objects to values and back. Nothing here judges, reads or sends.
"""
