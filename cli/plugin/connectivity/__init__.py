"""`kubectl mooring connectivity test`: two pods on two nodes measure each pair of rails.

`plan` is pure: which nodes and rails, the two pods, what their logs say. `connectivity_test` talks to the API server.
The pods run `serve.sh` and `measure.sh`.
"""
