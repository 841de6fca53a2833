"""The CRI shim: a proxy between kubelet and runtime that adds the devices of a pod's VFs to its containers.

`plan` is pure and makes the decisions. The other modules serve, call the runtime, and read files. `pb` is generated
from protos/.
"""
