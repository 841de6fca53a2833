"""STATUS: report what keeps this node from serving an ADD of a pod without VFs.

STATUS concerns the node's whole network: containerd 2 reports NetworkReady=False while any plugin of the chain fails
(go-cni's Status, GetStatusNetworkList in libcni/api.go). The kubelet then reports the node NotReady, and its pods are
evicted. So faults that affect only VFs do not count here; `cni.server.vf_faults` reports those.
"""

from cni.spec.conf import sends_annotations
from cni.spec.skel import UNAVAILABLE, Call, CniError
from cni.vf.node import Node

# The name of a pod record that no pod has.
_NO_POD = "status"


def run(node: Node, call: Call) -> None:
    """Raise CniError 50 if ADD could not read pod records, and so does not know whether a pod has VFs."""
    if sends_annotations(call.conf):
        return
    try:
        node.ledger.pod(_NO_POD)
    except OSError as unreadable:
        raise CniError(
            UNAVAILABLE, "mooring-cni is not available", f"cannot read the pod records: {unreadable}"
        ) from unreadable
