"""The rates record ``<state>/rates/<uid>.json``: the changed rates of a pod's VFs that the node has accepted.

    {"v":1,"pod":"<namespace>/<name>","rates":{…}}

``rates`` is the annotation ``mooring.dev/rates`` (`mooring.annotations.rates`). It replaces the rates in the pod
record.

Only `mooring-cni serve` writes it, with the locks of all VFs of the pod, before it changes a rate. From then on every
ADD of the pod sets these rates. It has the newest generation, and is removed some time after the pod record.
"""

from dataclasses import dataclass, replace

from mooring.annotations.rates import PodRates, VfRates, rates_fields, read_rates_value, with_rates
from mooring.errors import RecordError
from mooring.names import is_uid, with_suffix
from mooring.parsing import dump, parse
from mooring.records.ledger import LedgerEntry
from mooring.records.pod_record import PodRecord, uid_as_file_name

FOLDER = "rates"
IS_NAME = with_suffix(is_uid)


@dataclass(frozen=True, slots=True)
class RatesRecord:
    """Changed rates with their pod's name ``namespace/name``, which is only for messages; the uid is the identity."""

    pod: str
    rates: PodRates


def rates_record_name(uid: str) -> str:
    """Return the record's path below the state folder; raise RecordError for a uid that cannot be a file name."""
    return f"{FOLDER}/{uid_as_file_name(uid, FOLDER)}.json"


def read_rates_record(text: str, name: str) -> RatesRecord:
    """Read the record stored under ``name``; raise RecordError, also if it belongs to another pod."""
    whole = parse(text, name, RecordError).version(1)
    document = whole.fields({"v", "pod", "rates"})
    record = RatesRecord(
        pod=document.required("pod").string(longest=512), rates=read_rates_value(document.required("rates"))
    )
    if rates_record_name(record.rates.uid) != name:
        whole.fail(f"holds the rates of the pod {record.rates.uid!r}")
    return record


def dump_rates_record(record: RatesRecord) -> str:
    return dump({"v": 1, "pod": record.pod, "rates": rates_fields(record.rates)})


def with_recorded_rates(record: PodRecord, rates_record: RatesRecord | None) -> PodRecord:
    """Return the pod record with the changed rates in place of its own; raise RecordError if they do not match."""
    if rates_record is None:
        return record
    assignment, rates = record.assignment, rates_record.rates
    if (rates.uid, rates.node, len(rates.rates)) != (assignment.uid, assignment.node, len(assignment.vfs)):
        rule = f"{len(rates.rates)} rates of pod {rates.uid!r} on node {rates.node!r} are not those of the pod record"
        raise RecordError(rates_record_name(rates.uid), "rates", rule)
    return replace(record, assignment=with_rates(assignment, rates))


def has_rates(entry: LedgerEntry, rates: VfRates) -> bool:
    """Return whether a VF has the reservation and the limit of ``rates``; a default share reserves nothing."""
    reservation, limit = rates.min_tx_rate or 0, rates.max_tx_rate or 0
    return (entry.reserved_mbps, entry.set.max_tx_rate or 0) == (reservation, limit)


def has_rates_of(entry: LedgerEntry, pod: PodRecord | None, rates_record: RatesRecord) -> bool:
    """Return whether a VF has its pod's changed rates; True for a VF that is not one of the pod's."""
    return all(has_rates(entry, rates) for pci, rates in rates_by_pci(pod, rates_record).items() if pci == entry.pci)


def rates_by_pci(pod: PodRecord | None, rates_record: RatesRecord) -> dict[str, VfRates]:
    """Return a pod's changed rates by PCI address of its VFs; empty if the two records do not match."""
    vfs = pod.assignment.vfs if pod is not None else ()
    fits = len(vfs) == len(rates_record.rates.rates)
    return dict(zip((vf.pci for vf in vfs), rates_record.rates.rates, strict=True)) if fits else {}
