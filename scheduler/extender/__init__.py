"""Pods that request VFs and that kube-scheduler schedules: filter, score and reserve for them.

No I/O and no HTTP: server/http/ serves it. Uses pending/ and the packages below, never state/ or server/.
"""
