"""Check an assignment against the operator's offer, as `init` stored it on this node (`mooring.records.node_offer`).

The scheduler makes the same checks with the inventory. The checks here apply to every assignment and use the present
offer. A refusal is "try again" for five minutes after the later of two times: when the pod's record was first written,
and when the offer last changed. Both are files of root's that survive reboots and that no pod can write. VFs that a pod
already has are not checked.
"""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path

from cni.spec.skel import REFUSAL, TRY_AGAIN, CniError
from cni.vf.node import Node
from mooring.annotations.assignment import AssignedVf
from mooring.records import node_offer
from mooring.records.node_offer import PfOffer
from mooring.records.pod_record import pod_record_name

# How long offers may differ between nodes during a change, in seconds.
MAY_CHANGE_S = 300


def of_pf(node: Node, pf_pci: str) -> PfOffer:
    """Return the operator's offer for the VFs of a PF; the default offer if it has none."""
    return node.ledger.pf_offer(pf_pci) or PfOffer()


def check(node: Node, uid: str, vfs: Iterable[AssignedVf], pod_namespaces: Collection[str]) -> None:
    """Raise CniError 11 or 100 unless the offer allows the assignment of each VF to a pod of these namespaces."""
    for vf in vfs if node.enforces_offer else ():
        terms = node.ledger.pf_offer(node.sysfs.pf_pci(vf))
        reason = "the PF is not on offer" if terms is None else terms.refusal(vf, pod_namespaces)
        if reason:
            raise refusal(node, uid, f"vf {vf.vf} of pf {vf.pf!r}: {reason}")


def refusal(node: Node, uid: str, text: str) -> CniError:
    """Return the error for an assignment that exceeds the offer: code 11 soon after a change, otherwise 100."""
    paths = (node.ledger.state / pod_record_name(uid), node.ledger.state / node_offer.NAME)
    age_s = datetime.now(UTC).timestamp() - max(map(_written_at, paths))
    # A time in the future means that the clock was set back, and proves no recent change.
    code = TRY_AGAIN if 0 <= age_s < MAY_CHANGE_S else REFUSAL
    advice = "if the cluster's offer allows it, run mooring-advertiser init on this node"
    return CniError(code, f"the assignment exceeds this node's offer: {text}", advice)


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
