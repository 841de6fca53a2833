"""`kubectl mooring connectivity test`: two pods on two nodes measure each pair of rails.

`plan` is pure but for reading `serve.sh` and `measure.sh`, which the pods run: which nodes and rails, the two pods,
what their logs say. `connectivity_test` talks to the API server.
"""
