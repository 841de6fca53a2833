"""The HTTP servers: kube-scheduler's extender protocol over HTTP or TLS, and metrics and health.

`scheduler.extender` decides the responses; this package only serves them.
"""
