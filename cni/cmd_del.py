"""DEL: give back what the ledger gives to a sandbox, and what it should have given to it.

The assignment is not an input here: a finished pod's sandbox may be removed days later, when its VF is another pod's.
What counts is who the ledger says has a VF, and what lies in the sandbox's own namespace.
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
