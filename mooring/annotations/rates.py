"""The rates of a running pod that were changed after its assignment: allocated on the pod, in force on its node.

Allocated, ``mooring.dev/rates`` on the pod, by the scheduler:

    {"v":1,"uid":"<pod uid>","node":"n1","generation":2,
     "rates":[{"min_tx_rate":15000,"max_tx_rate":20000},{}],"reserved":[20000,0]}

One entry of ``rates`` per VF of the assignment, in its order; they stand in place of the assignment's rates. A rate
that is absent is not set by us: 0 in the kernel. ``reserved`` is what each VF reserves, in Mb/s, as long as the node
has not put this generation in force: the most that its VF may still have of this or an earlier generation. So whoever
reads this annotation and the node's knows what is reserved, and needs no other memory.

In force, ``mooring.dev/rates-in-force`` on the node, by its advertiser: the generation by uid, of pods that have
``mooring.dev/rates`` only.

    {"v":1,"pods":{"<pod uid>":2}}

It counts as long as the node's inventory says ``rates``. Without both the node changes no rates of running pods: an
advertiser of an earlier version leaves the annotation as it finds it.

Readers of the first refuse unknown fields: a rate that is not understood is not applied. Those of the second ignore
them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mooring import names
from mooring.annotations.assignment import Assignment
from mooring.annotations.request import MOST_INTERFACES
from mooring.errors import AnnotationError
from mooring.nic.settings import rate
from mooring.parsing import Fields, Value, dump, parse

# 2**53 - 1: every reader of JSON has integers up to it.
LAST_GENERATION = 9_007_199_254_740_991
# As many pods as a node has VFs at the most.
MOST_PODS = 4096
# The manifests' policies refuse longer texts too, where they are written.
MOST_RATES_CHARACTERS, MOST_IN_FORCE_CHARACTERS = 16_384, 131_072


@dataclass(frozen=True, slots=True)
class VfRates:
    """The rates of one VF, in Mb/s; None is a rate that is not set."""

    min_tx_rate: int | None = None
    max_tx_rate: int | None = None


@dataclass(frozen=True, slots=True)
class PodRates:
    """The rates of the VFs of the pod ``uid`` on ``node``, in the assignment's order; the first generation is 1.

    ``reserved`` is what each VF reserves until ``generation`` is in force, in Mb/s: never below its ``min_tx_rate``.
    """

    uid: str
    node: str
    generation: int
    rates: tuple[VfRates, ...]
    reserved: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RatesInForce:
    """The generation of rates that is in force, by pod uid; a pod that is not named has its assignment's rates."""

    generations: Mapping[str, int] = field(default_factory=dict, hash=False)


def read_rates(text: str) -> PodRates:
    """Read the pod's annotation; raise AnnotationError."""
    return read_rates_value(_parse(text, names.RATES, MOST_RATES_CHARACTERS))


def read_rates_value(whole: Value) -> PodRates:
    """Read rates inside another document; raise that document's error."""
    document = whole.version(1).fields({"v", "uid", "node", "generation", "rates", "reserved"})
    rates = tuple(_vf_rates(one) for one in document.required("rates").items(MOST_INTERFACES))
    reserved = document.required("reserved")
    amounts = tuple(rate(one) for one in reserved.items(MOST_INTERFACES))
    if len(amounts) != len(rates):
        reserved.fail(f"a list of {len(amounts)} beside {len(rates)} rates")
    for index, (one, amount) in enumerate(zip(rates, amounts, strict=True)):
        if amount < (one.min_tx_rate or 0):
            reserved.at(f"[{index}]", amount).fail(f"{amount} is below min_tx_rate {one.min_tx_rate}")
    return PodRates(
        uid=names.uid(document.required("uid")),
        node=names.subdomain(document.required("node")),
        generation=document.required("generation").integer(1, LAST_GENERATION),
        rates=rates,
        reserved=amounts,
    )


def dump_rates(rates: PodRates) -> str:
    """Write the pod's annotation; equal rates give equal strings."""
    return dump(rates_fields(rates))


def rates_fields(rates: PodRates) -> dict[str, object]:
    """Return rates as the JSON object that the annotation and the node's record carry."""
    return {
        "v": 1,
        "uid": rates.uid,
        "node": rates.node,
        "generation": rates.generation,
        "rates": [_dump_vf_rates(one) for one in rates.rates],
        "reserved": list(rates.reserved),
    }


def verified_rates(text: str, assignment: Assignment) -> PodRates:
    """Read the annotation of the pod that has this assignment.

    Raise AnnotationError if it cannot be read, names another pod or node, or has not one entry for each VF.
    """
    rates = read_rates(text)
    for path, said, true in (("uid", rates.uid, assignment.uid), ("node", rates.node, assignment.node)):
        if said != true:
            raise AnnotationError(names.RATES, path, f"{said!r} is not the assignment's {path} {true!r}")
    if len(rates.rates) != len(assignment.vfs):
        rule = f"{len(rates.rates)} entries for the {len(assignment.vfs)} VFs of the assignment"
        raise AnnotationError(names.RATES, "rates", rule)
    return rates


def assigned_rates(assignment: Assignment) -> tuple[VfRates, ...]:
    """Return the rates that the VFs of an assignment have as long as none were changed."""
    return tuple(VfRates(vf.settings.min_tx_rate, vf.settings.max_tx_rate) for vf in assignment.vfs)


def reserved_rates(
    assignment: Assignment, rates: PodRates | None, in_force: Mapping[str, int] | None
) -> tuple[int, ...]:
    """Return what each VF of a pod reserves, in Mb/s.

    ``rates`` is what is allocated, None for what the assignment says; ``in_force`` are the generations that the node
    has put in force, by pod uid. As long as that is another one the VF may still have any earlier rate. ``in_force`` is
    None for a node that changes no rates: its programs may be of a version that knows the assignment's alone, and sets
    them whenever a sandbox is made again.
    """
    assigned = tuple(vf.min_tx_rate for vf in assignment.vfs)
    if rates is None:
        return assigned
    if in_force is None:
        return tuple(map(max, assigned, rates.reserved))
    if in_force.get(assignment.uid) == rates.generation:
        return tuple(one.min_tx_rate or 0 for one in rates.rates)
    return rates.reserved


def with_rates(assignment: Assignment, rates: PodRates) -> Assignment:
    """Return the assignment with changed rates; both are of the same pod, and have as many entries."""
    vfs = (
        replace(vf, settings=replace(vf.settings, min_tx_rate=one.min_tx_rate, max_tx_rate=one.max_tx_rate))
        for vf, one in zip(assignment.vfs, rates.rates, strict=True)
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
    """Write the node's annotation; equal values give equal strings."""
    return dump({"v": 1, "pods": dict(in_force.generations)})


def _parse(text: str, key: str, longest: int) -> Value:
    if len(text) > longest:
        raise AnnotationError(key, "", f"longer than {longest} characters")
    return parse(text, key, AnnotationError)


def _uid(pods: Value, uid: str) -> str:
    return names.uid(pods.instead(uid))


def _vf_rates(value: Value) -> VfRates:
    document: Fields = value.fields({"min_tx_rate", "max_tx_rate"})
    low, high = document.optional("min_tx_rate", rate), document.optional("max_tx_rate", rate)
    # The kernel's rule (do_setvfinfo), as for a request.
    if high and (low or 0) > high:
        document.required("min_tx_rate").fail(f"{low} exceeds max_tx_rate {high}")
    return VfRates(low, high)


def _dump_vf_rates(rates: VfRates) -> dict[str, int]:
    named = (("min_tx_rate", rates.min_tx_rate), ("max_tx_rate", rates.max_tx_rate))
    return {name: amount for name, amount in named if amount is not None}
