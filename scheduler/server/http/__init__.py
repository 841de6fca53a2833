"""The HTTP servers: kube-scheduler's extender protocol over HTTP or TLS, and metrics and health.

What the extender answers is decided in `scheduler.extender`; only how it is served belongs here.
"""
