"""DEL: return a sandbox's VFs to the host, whatever state they are in. The steps for each VF, in order:

1. find (here, `cni.vf.detach.unrecorded`): the sandbox's ledger entries, and its VFs that the ledger has lost;
2. mark (`cni.vf.detach.detach`): under the VF's lock its entry becomes `returning`, with the largest min rate that its
   PF may have;
3. move out (`cni.vf.detach.move_out`): the link goes down in the pod, and IPAM may release its addresses. The RDMA
   device and the netdev move to the host; the step waits for both;
4. free (`cni.vf.rdma_users`): remove RDMA devices that the pod created on the VF (`cni.vf.detach.left_behind`), then
   wait until no process of the pod uses the VF's own device, or rebind its driver;
5. restore (`cni.vf.detach.restore`, `cni.vf.detach.left_behind`): the settings on the PF, the netdev, its names, and
   what the pod left on it. If something cannot be restored, the VF's driver is rebound and the step runs once more.
   Then the entry is removed. It stays `returning` as long as a process uses the RDMA device.

An entry of an earlier boot skips steps 3 and 4, and step 5 resets its VF. No step calls an earlier one, and each step
can run again: the next DEL completes what a killed one left. The input is the ledger's entries and the contents of the
sandbox's own namespace. The assignment is not an input, because the sandbox of a finished pod may be removed days
later, when another pod has its VF.
"""

from cni.spec.conf import Conf
from cni.spec.skel import Call
from cni.vf.detach import unrecorded
from cni.vf.detach.detach import detach_vfs
from cni.vf.node import Node
from mooring.records.ledger import LedgerEntry


def run(node: Node, call: Call, conf: Conf) -> None:
    """Release all VFs of a sandbox, or those of one network; try every VF, then raise the last CniError."""
    pcis = unrecorded.add_to_ledger(node, call, conf)
    detach_vfs(node, node.ledger.entries_of(call.container, pcis), lambda entry: _is_of(entry, call, conf))


def _is_of(entry: LedgerEntry, call: Call, conf: Conf) -> bool:
    """Return whether the call releases this VF; the configuration of a Multus delegate names one network."""
    of_network = conf.network is None or entry.attachment is None or entry.attachment.network == conf.network
    return entry.container == call.container and of_network
