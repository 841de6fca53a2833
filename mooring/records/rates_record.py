"""The rates record ``<state>/rates/<uid>.json``: the changed rates of a pod's VFs, as the node has taken them.

    {"v":1,"pod":"<namespace>/<name>","rates":{…}}

``rates`` is the annotation ``mooring.dev/rates`` (`mooring.annotations.rates`). It stands in place of the rates in the
pod record.

Written by `mooring-cni serve` only, with the locks of all the pod's VFs, before a rate is changed; from then on every
ADD of the pod sets these rates. It holds the newest generation, and is removed some time after the pod record.
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
    """Changed rates with their pod's name (``namespace/name``, for people: the uid is the identity)."""

    pod: str
    rates: PodRates


def rates_record_name(uid: str) -> str:
    """Return the record's path below the state folder; raise RecordError for a uid that cannot be a file's name."""
    return f"{FOLDER}/{uid_as_file_name(uid, FOLDER)}.json"


def read_rates_record(text: str, name: str) -> RatesRecord:
    """Read the record stored under ``name``; raise RecordError, also if it is another pod's."""
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


def with_recorded_rates(record: PodRecord, changed: RatesRecord | None) -> PodRecord:
    """Return the pod record with the rates that stand in place of its own; raise RecordError if they do not fit it."""
    if changed is None:
        return record
    assignment, rates = record.assignment, changed.rates
    if (rates.uid, rates.node, len(rates.rates)) != (assignment.uid, assignment.node, len(assignment.vfs)):
        what = f"{len(rates.rates)} rates of pod {rates.uid!r} on node {rates.node!r} are not those of the pod record"
        raise RecordError(rates_record_name(rates.uid), "rates", what)
    return replace(record, assignment=with_rates(assignment, rates))


def has_rates(entry: LedgerEntry, rates: VfRates) -> bool:
    """Return whether a VF reserves what ``rates`` reserve, and has their limit; a default share reserves nothing."""
    reserved, limit = rates.min_tx_rate or 0, rates.max_tx_rate or 0
    return (entry.reserved_mbps, entry.set.max_tx_rate or 0) == (reserved, limit)


def has_rates_of(entry: LedgerEntry, pod: PodRecord | None, changed: RatesRecord) -> bool:
    """Return whether a VF has what its pod's changed rates are for it; one that is not the pod's has no others."""
    return all(has_rates(entry, rates) for pci, rates in rates_by_pci(pod, changed).items() if pci == entry.pci)


def rates_by_pci(pod: PodRecord | None, changed: RatesRecord) -> dict[str, VfRates]:
    """Return a pod's changed rates by its VFs' PCI addresses; none where the two records do not fit together."""
    vfs = pod.assignment.vfs if pod is not None else ()
    fits = len(vfs) == len(changed.rates.rates)
    return dict(zip((vf.pci for vf in vfs), changed.rates.rates, strict=True)) if fits else {}
