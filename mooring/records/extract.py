"""The extract of the node's records: what the advertiser reads of them, in ``<run>/extract/{vfs,pods}``.

The records themselves are root's. The advertiser needs no more of them than who holds which VF with which rate, and it
runs without root where it serves. So each writer of a record writes an extract of it too, which a group may read. It is
in the format of the record, without what only the writer needs: how a VF was before, its namespace, its IPAM. Of how it
was only the MAC of its netdev is left, which is the pod's now.

    vfs/<pci>.json    by mooring-cni, with the ledger entry; removed with it
    pods/<uid>.json   by the CRI shim, with the pod record; removed when the kubelet stops the pod's sandbox

So a VF whose ledger entry names a pod without an extract is held by a pod that is ending, or that nobody recorded.
"""

from dataclasses import replace

from mooring.records import ledger, pod_record
from mooring.records.ledger import LedgerEntry, Netns, Original, dump_ledger_entry
from mooring.records.pod_record import PodRecord, dump_pod_record

FOLDER = "extract"
VFS, PODS = f"{FOLDER}/{ledger.FOLDER}", f"{FOLDER}/{pod_record.FOLDER}"


def vf_extract(entry: LedgerEntry) -> str:
    """Return a ledger entry's extract."""
    original = Original(netdev_mac=entry.original.netdev_mac)
    return dump_ledger_entry(replace(entry, netns=Netns("", 0), original=original, ipam=None, in_doubt=False))


def pod_extract(record: PodRecord) -> str:
    """Return a pod record's extract: all of it, as the pod's annotation has it too."""
    return dump_pod_record(record)
