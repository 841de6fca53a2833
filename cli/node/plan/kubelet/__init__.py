"""Determine how a host's kubelet is started and which socket it uses, and plan the edits that select the shim's."""
