"""What the advertiser and `mooring-cni serve` tell each other of changed rates: files in the run folder, by pod uid.

Handed over, ``advertiser/rates/<uid>.json``, by the advertiser, as long as the API server has the pod on this node:

    {"v":1,"rates":"<annotation mooring.dev/rates>","signature":"<annotation mooring.dev/rates-signature>"}

``signature`` is absent where the pod has none. As long as ``advertiser/rates-listed`` is there, which no boot survives,
a pod without a file does not exist, or has had no changed rates. The advertiser serves without root: a reader bounds
what it reads, and believes none of it.

The state of the pod's rates record, ``extract/rates/<uid>.json``, by the server (``refused`` only where it is so):

    {"v":1,"pod":"ns/p","generation":2,"in_force":false,"refused":{"pci":"0000:3b:00.2","why":"pf 'eth0' refuses …"}}

``in_force``: no VF of the pod has rates of an earlier generation, nor ever gets them again. The folder is there once it
holds the state of every record: without it nothing is known of any pod.

Of which server the folder is, `mooring.records.rates_server` says.
"""

from dataclasses import dataclass

from mooring import names
from mooring.annotations.rates import LAST_GENERATION
from mooring.errors import RecordError
from mooring.parsing import Value, dump, parse
from mooring.records import extract, rates_record, run_folder

HANDED_OVER = f"{run_folder.ADVERTISER}/rates"
LISTED = f"{run_folder.ADVERTISER}/rates-listed"
STATES = f"{extract.FOLDER}/{rates_record.FOLDER}"
# 64 VFs take 5 KB, and each quote in it one more.
MOST_BYTES = 32_768
_LONGEST_WHY = 4096


@dataclass(frozen=True, slots=True)
class HandedOverRates:
    """Both annotations of a pod, as its API object has them."""

    rates: str
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The VF that does not get its rates, and why."""

    pci: str
    why: str


@dataclass(frozen=True, slots=True)
class RatesState:
    """The generation that is recorded for a pod (``namespace/name``), and whether it is in force."""

    pod: str
    generation: int
    in_force: bool
    refused: Refusal | None = None


def read_handed_over(text: str, name: str) -> HandedOverRates:
    """Read what the advertiser has handed over; ``name`` is for errors. Raise RecordError."""
    document = parse(text, name, RecordError).version(1).fields({"v", "rates", "signature"})
    return HandedOverRates(document.required("rates").string(), document.optional("signature", Value.string))


def dump_handed_over(given: HandedOverRates) -> str:
    signature = {} if given.signature is None else {"signature": given.signature}
    return dump({"v": 1, "rates": given.rates, **signature})


def read_state(text: str, name: str) -> RatesState:
    """Read the state that the server has left; a field that is not known is ignored. Raise RecordError."""
    document = parse(text, name, RecordError).version(1).fields()
    return RatesState(
        pod=document.required("pod").string(longest=512),
        generation=document.required("generation").integer(1, LAST_GENERATION),
        in_force=document.required("in_force").boolean(),
        refused=document.optional("refused", _refusal),
    )


def dump_state(state: RatesState) -> str:
    document: dict[str, object] = {
        "v": 1,
        "pod": state.pod,
        "generation": state.generation,
        "in_force": state.in_force,
    }
    if state.refused is not None:
        document["refused"] = {"pci": state.refused.pci, "why": state.refused.why[:_LONGEST_WHY]}
    return dump(document)


def _refusal(value: Value) -> Refusal:
    document = value.fields()
    return Refusal(names.address(document.required("pci")), document.required("why").string(longest=_LONGEST_WHY))
