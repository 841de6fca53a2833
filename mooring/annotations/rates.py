"""Changed rates of running pods: the scheduler allocates them, and the node puts them in force.

Allocated rates are in the annotation ``mooring.dev/rates`` of the pod, written by the scheduler:

    {"v":1,"uid":"<pod uid>","node":"n1","generation":2,
     "rates":[{"min_tx_rate":15000,"max_tx_rate":20000},{}],"reserved":[20000,0]}

``rates`` has one entry per VF of the assignment, in its order, which replaces the assignment's rates. An absent rate is
not set, which is 0 in the kernel. ``reserved`` is what each VF reserves, in Mb/s, until the node has put this
generation in force: the largest rate that the VF may still have from this or an earlier generation. So this annotation
and the node's together show what is reserved.

Rates in force are in the annotation ``mooring.dev/rates-in-force`` of the node, written by its advertiser: the
generation by pod uid, only for pods with ``mooring.dev/rates``.

    {"v":1,"pods":{"<pod uid>":2}}

It is valid only while the node's inventory has ``rates``: advertisers of earlier versions, whose nodes change no rates
of running pods, do not remove the annotation.

Readers of the first annotation reject unknown fields, so that they apply no rate that they do not understand. Readers
of the second ignore them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mooring import names
from mooring.annotations.assignment import Assignment
from mooring.annotations.request import MOST_INTERFACES
from mooring.errors import AnnotationError
from mooring.nic.settings import rate
from mooring.parsing import Fields, Value, dump, parse

# 2**53 - 1, the largest integer that every JSON reader supports.
LAST_GENERATION = 9_007_199_254_740_991
# The largest number of VFs of a node.
MOST_PODS = 4096
# The manifests' admission policies have the same limits.
MOST_RATES_CHARACTERS, MOST_IN_FORCE_CHARACTERS = 16_384, 131_072


@dataclass(frozen=True, slots=True)
class VfRates:
    """The rates of one VF in Mb/s; None if a rate is not set."""

    min_tx_rate: int | None = None
    max_tx_rate: int | None = None


@dataclass(frozen=True, slots=True)
class PodRates:
    """The rates of the VFs of the pod ``uid`` on ``node``, in the assignment's order; generations start at 1.

    ``reserved`` is what each VF reserves in Mb/s until ``generation`` is in force; at least its ``min_tx_rate``.
    """

    uid: str
    node: str
    generation: int
    rates: tuple[VfRates, ...]
    reserved: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RatesInForce:
    """The generation of rates in force, by pod uid; pods that are not listed have their assignment's rates."""

    generations: Mapping[str, int] = field(default_factory=dict, hash=False)


def read_rates(text: str) -> PodRates:
    """Read the pod's annotation; raise AnnotationError."""
    return read_rates_value(_parse(text, names.RATES, MOST_RATES_CHARACTERS))


def read_rates_value(whole: Value) -> PodRates:
    """Read rates inside another document; raise that document's error."""
    document = whole.version(1).fields({"v", "uid", "node", "generation", "rates", "reserved"})
    rates = tuple(_vf_rates(item) for item in document.required("rates").items(MOST_INTERFACES))
    reserved_value = document.required("reserved")
    amounts = tuple(rate(item) for item in reserved_value.items(MOST_INTERFACES))
    if len(amounts) != len(rates):
        reserved_value.fail(f"has {len(amounts)} entries for {len(rates)} rates")
    for index, (vf_rates, amount) in enumerate(zip(rates, amounts, strict=True)):
        if amount < (vf_rates.min_tx_rate or 0):
            reserved_value.at(f"[{index}]", amount).fail(f"{amount} is below min_tx_rate {vf_rates.min_tx_rate}")
    return PodRates(
        uid=names.uid(document.required("uid")),
        node=names.subdomain(document.required("node")),
        generation=document.required("generation").integer(1, LAST_GENERATION),
        rates=rates,
        reserved=amounts,
    )


def dump_rates(rates: PodRates) -> str:
    """Return the value of the pod's annotation; equal rates give equal strings."""
    return dump(rates_fields(rates))


def rates_fields(rates: PodRates) -> dict[str, object]:
    """Return rates as the JSON object in the annotation and in the node's record."""
    return {
        "v": 1,
        "uid": rates.uid,
        "node": rates.node,
        "generation": rates.generation,
        "rates": [_dump_vf_rates(vf_rates) for vf_rates in rates.rates],
        "reserved": list(rates.reserved),
    }


def verified_rates(text: str, assignment: Assignment) -> PodRates:
    """Read the annotation of the pod with this assignment.

    Raise AnnotationError if it cannot be read, names another pod or node, or does not have one entry per VF.
    """
    rates = read_rates(text)
    for path, value, expected in (("uid", rates.uid, assignment.uid), ("node", rates.node, assignment.node)):
        if value != expected:
            raise AnnotationError(names.RATES, path, f"{value!r} is not the assignment's {path} {expected!r}")
    if len(rates.rates) != len(assignment.vfs):
        rule = f"{len(rates.rates)} entries for the {len(assignment.vfs)} VFs of the assignment"
        raise AnnotationError(names.RATES, "rates", rule)
    return rates


def assigned_rates(assignment: Assignment) -> tuple[VfRates, ...]:
    """Return the rates in an assignment, one entry per VF."""
    return tuple(VfRates(vf.settings.min_tx_rate, vf.settings.max_tx_rate) for vf in assignment.vfs)


def reserved_rates(
    assignment: Assignment, rates: PodRates | None, in_force: Mapping[str, int] | None
) -> tuple[int, ...]:
    """Return what each VF of a pod reserves, in Mb/s.

    ``rates`` are the allocated rates, None for the assignment's. ``in_force`` are the generations in force on the node,
    by pod uid; while another generation is in force, the VF may still have any earlier rate. ``in_force`` is None for a
    node that changes no rates: its programs may be of a version that sets the assignment's rates whenever it recreates
    a sandbox.
    """
    assignment_mbps = tuple(vf.min_tx_rate for vf in assignment.vfs)
    if rates is None:
        return assignment_mbps
    if in_force is None:
        return tuple(map(max, assignment_mbps, rates.reserved))
    if in_force.get(assignment.uid) == rates.generation:
        return tuple(vf_rates.min_tx_rate or 0 for vf_rates in rates.rates)
    return rates.reserved


def with_rates(assignment: Assignment, rates: PodRates) -> Assignment:
    """Return the assignment with changed rates; both must be of the same pod and have the same number of entries."""
    vfs = (
        replace(vf, settings=replace(vf.settings, min_tx_rate=vf_rates.min_tx_rate, max_tx_rate=vf_rates.max_tx_rate))
        for vf, vf_rates in zip(assignment.vfs, rates.rates, strict=True)
    )
    return replace(assignment, vfs=tuple(vfs))


def read_rates_in_force(text: str) -> RatesInForce:
    """Read the node's annotation; raise AnnotationError."""
    document = _parse(text, names.RATES_IN_FORCE, MOST_IN_FORCE_CHARACTERS).version(1).fields()
    pods = document.required("pods")
    entries = pods.fields().items()
    if len(entries) > MOST_PODS:
        pods.fail(f"{len(entries)} pods are more than {MOST_PODS}")
    return RatesInForce({_uid(pods, uid): value.integer(1, LAST_GENERATION) for uid, value in entries})


def dump_rates_in_force(in_force: RatesInForce) -> str:
    """Return the value of the node's annotation; equal values give equal strings."""
    return dump({"v": 1, "pods": dict(in_force.generations)})


def _parse(text: str, key: str, longest: int) -> Value:
    if len(text) > longest:
        raise AnnotationError(key, "", f"longer than {longest} characters")
    return parse(text, key, AnnotationError)


def _uid(pods: Value, uid: str) -> str:
    return names.uid(pods.with_raw(uid))


def _vf_rates(value: Value) -> VfRates:
    document: Fields = value.fields({"min_tx_rate", "max_tx_rate"})
    low, high = document.optional("min_tx_rate", rate), document.optional("max_tx_rate", rate)
    # The kernel has the same rule (do_setvfinfo).
    if high and (low or 0) > high:
        document.required("min_tx_rate").fail(f"{low} exceeds max_tx_rate {high}")
    return VfRates(low, high)


def _dump_vf_rates(rates: VfRates) -> dict[str, int]:
    rate_fields = (("min_tx_rate", rates.min_tx_rate), ("max_tx_rate", rates.max_tx_rate))
    return {name: amount for name, amount in rate_fields if amount is not None}
