"""The scheduling queue: which pod or group is tried next, and which events requeue those that fit nowhere.

No I/O, no decision and no object of the API: entries are names with a place in the order. Uses kube/ only.
"""
