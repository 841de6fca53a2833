"""Make extracts of the node's records for the advertiser, in ``<run>/extract/{vfs,pods}``.

Only root can read the records. The advertiser, which serves without root, needs only who holds which VF with which
rate. So each writer of a record also writes an extract, which a group can read. It has the format of the record,
without the fields that only the writer needs: the VF's original state, its namespace and its IPAM. Of the original
state only the netdev's MAC stays, which the pod has now.

    vfs/<pci>.json    by mooring-cni, with the ledger entry; removed with it
    pods/<uid>.json   by the CRI shim, with the pod record; removed when the kubelet stops the pod's sandbox

So if a ledger entry names a pod without an extract, the pod is ending, or was never recorded.
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
    return dump_ledger_entry(replace(entry, netns=Netns("", 0), original=original, ipam=None))


def pod_extract(record: PodRecord) -> str:
    """Return a pod record's extract, which is the whole record, because the pod's annotation has the same contents."""
    return dump_pod_record(record)
