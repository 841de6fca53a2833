"""Pods that kube-scheduler decides about and that request VFs: filter, score and reserve for them.

No I/O, no bytes of HTTP: server/http/ serves it. Uses pending/ and the rooms below, never state/ or server/.
"""
