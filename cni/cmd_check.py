"""CHECK: compare a pod's VFs with the state that ADD left, and name every difference."""

from cni.plan import drift
from cni.plan.attachment import record_to_apply, vfs_of_call
from cni.spec.conf import Conf
from cni.spec.skel import BAD_CONFIG, DRIFT, Call, CniError
from cni.vf import ipam
from cni.vf.node import Node
from cni.vf.observe import observe
from mooring.records.ledger import LedgerEntry
from mooring.records.rates_record import with_recorded_rates


def run(node: Node, call: Call, conf: Conf) -> None:
    """Raise CniError 103 that names every difference; a call without VFs has none."""
    if not conf.checks:
        return
    uid = call.args.get("K8S_POD_UID", "")
    record = record_to_apply(call, conf, node.ledger.pod(uid))
    rates_record = node.ledger.rates(uid) if record is not None else None
    vfs = vfs_of_call(with_recorded_rates(record, rates_record), conf) if record is not None else ()
    of_sandbox = node.ledger.entries_of(call.container, [vf.pci for vf in vfs])
    entries = {
        entry.pci: entry
        for entry in of_sandbox
        if conf.network is None or entry.attachment is None or entry.attachment.network == conf.network
    }
    if not vfs and not entries:
        return
    conf.check()
    if conf.previous is None:
        raise CniError(BAD_CONFIG, "configuration field 'prevResult' is missing: CHECK requires it")
    generation = rates_record.rates.generation if rates_record is not None else None
    texts = drift.from_record(vfs, entries, call.container, generation)
    for entry in entries.values():
        texts += _check_vf(node, call, conf, entry)
    if texts:
        raise CniError(DRIFT, f"container {call.container!r} differs from what ADD configured", "; ".join(texts))


def _check_vf(node: Node, call: Call, conf: Conf, entry: LedgerEntry) -> list[str]:
    interface, result_texts = drift.from_result(entry, conf.previous or {}, call.netns or "")
    network = conf.network_of(entry.attachment.network if entry.attachment is not None else "")
    texts = [*result_texts, *drift.from_kernel(entry, observe(node, entry), network.mtu, interface)]
    if entry.ipam is not None:
        try:
            ipam.check(entry.ipam, entry.container, call.netns or "", conf.previous or {})
        except CniError as error:
            texts.append(f"vf {entry.pci}: {error}")
    return texts
