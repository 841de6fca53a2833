"""STATUS: report what keeps this node from serving an ADD of a pod without VFs.

A runtime asks for its whole network: containerd 2 reports NetworkReady=False while any plugin of the chain fails
(go-cni's Status, GetStatusNetworkList in libcni/api.go), the kubelet then reports the node NotReady, and its pods are
evicted. So nothing counts here that concerns VFs alone. What is wrong with those `cni.server.vf_faults` reports.
"""

from cni.spec.conf import sends_annotations
from cni.spec.skel import UNAVAILABLE, Call, CniError
from cni.vf.node import Node

# A name like that of any pod's record; no pod has it.
_NO_POD = "status"


def run(node: Node, call: Call) -> None:
    """Raise CniError 50 if ADD could not tell whether a pod has VFs: its record is read first."""
    if sends_annotations(call.conf):
        return
    try:
        node.ledger.pod(_NO_POD)
    except OSError as unreadable:
        raise CniError(
            UNAVAILABLE, "mooring-cni is not available", f"cannot read the pod records: {unreadable}"
        ) from unreadable
