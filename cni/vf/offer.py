"""Hold an assignment against the operator's offer, as `init` left it on this node (`mooring.records.node_offer`).

The scheduler judges the same by the inventory. Here it counts whoever wrote the assignment, and whatever the offer was
then. A refusal says "try again" for five minutes from the later of two times: when the pod's record was first written,
and when the offer last changed. Both are files of root's that outlive programs and boots, and no pod can write either.
VFs that a pod has already stay as they are: nothing here is asked about them.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from cni.spec.skel import REFUSED, TRY_AGAIN, CniError
from cni.vf.node import Node
from mooring.annotations.assignment import AssignedVf
from mooring.records import node_offer
from mooring.records.node_offer import PfOffer
from mooring.records.pod_record import pod_record_name

# How long an offer may differ from node to node while it is changed, in seconds.
MAY_CHANGE_S = 300


def of_pf(node: Node, pf_pci: str) -> PfOffer:
    """Return the operator's terms for the VFs of a PF; those of an absent offer where it has none."""
    return node.ledger.pf_offer(pf_pci) or PfOffer()


def check(node: Node, uid: str, vfs: Iterable[AssignedVf]) -> None:
    """Raise CniError 11 or 100 unless the offer allows each of these VFs, as it is assigned, to a pod."""
    for vf in vfs if node.enforces_offer else ():
        terms = node.ledger.pf_offer(node.sysfs.pf_pci(vf))
        reason = "the PF is not on offer" if terms is None else terms.refused(vf)
        if reason:
            raise refusal(node, uid, f"vf {vf.vf} of pf {vf.pf!r}: {reason}")


def refusal(node: Node, uid: str, what: str) -> CniError:
    """Return the error for an assignment that goes beyond the offer."""
    paths = (node.ledger.state / pod_record_name(uid), node.ledger.state / node_offer.NAME)
    age_s = datetime.now(UTC).timestamp() - max(map(_written_at, paths))
    # The future is a clock that was set back, and says nothing about a change.
    code = TRY_AGAIN if 0 <= age_s < MAY_CHANGE_S else REFUSED
    advice = "if the cluster's offer allows it, run mooring-advertiser init on this node"
    return CniError(code, f"the assignment exceeds this node's offer: {what}", advice)


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
