"""DEL: give a sandbox's VFs back to the host, whatever state they are in. The way of each VF, downwards:

1. find (here, `cni.vf.unrecorded`): the sandbox's ledger entries, and its VFs that the ledger has lost;
2. mark (`cni.vf.detach`): under the VF's lock its entry becomes `returning`;
3. move out (`cni.vf.move_out`): the link goes down in the pod, from where on IPAM gets its addresses back; RDMA device
   and netdev move to the host, and are waited for;
4. free (`cni.vf.rdma_users`): no process of the pod's uses the RDMA device any more, or its driver is rebound;
5. restore (`cni.vf.restore`): settings on the PF, the netdev, its names. Then its entry is removed.

No step calls an earlier one, and each may be run again: what a killed DEL left is done by the next one. The assignment
is not an input: a finished pod's sandbox may be removed days later, when its VF is another pod's. What counts is who
the ledger says has a VF, and what lies in the sandbox's own namespace.
"""

from cni.spec.conf import Conf
from cni.spec.skel import Call
from cni.vf import unrecorded
from cni.vf.detach import detach_all
from cni.vf.node import Node
from mooring.ledger import LedgerEntry


def run(node: Node, call: Call, conf: Conf) -> None:
    """Give back every VF of a sandbox, or of one network in it; raise the last CniError after trying all."""
    unrecorded.add_to_ledger(node, call, conf)
    detach_all(node, node.ledger.entries(call.container), lambda entry: _is_of(entry, call, conf))


def _is_of(entry: LedgerEntry, call: Call, conf: Conf) -> bool:
    """Return whether a DEL is for this VF; a delegate's configuration names the network that it is about."""
    of_network = conf.network is None or entry.attachment is None or entry.attachment.network == conf.network
    return entry.container == call.container and of_network
