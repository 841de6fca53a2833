"""The kubelet of a host: how it is started, which runtime's socket it has, and the edits that make it the shim's."""
