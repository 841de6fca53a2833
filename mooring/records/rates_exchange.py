"""The files in the run folder by which the advertiser and `mooring-cni serve` exchange changed rates, by pod uid.

The advertiser writes ``advertiser/rates/<uid>.json`` while the API server has the pod on this node:

    {"v":1,"rates":"<annotation mooring.dev/rates>","signature":"<annotation mooring.dev/rates-signature>"}

``signature`` is absent if the pod has none. While ``advertiser/rates-listed`` exists, which does not survive a reboot,
a pod without a file does not exist or has never had changed rates. The advertiser serves without root, so readers limit
what they read, and verify everything.

The server writes the state of the pod's rates record to ``extract/rates/<uid>.json``; ``refused`` is optional:

    {"v":1,"pod":"ns/p","generation":2,"in_force":false,"refused":{"pci":"0000:3b:00.2","why":"pf 'eth0' refuses …"}}

``in_force``: no VF of the pod has rates of an earlier generation, or will get them again. The folder is created only
when it has the state of every record; without it the states of all pods are unknown.

`mooring.records.rates_server` records which server wrote the folder.
"""

from dataclasses import dataclass

from mooring import names
from mooring.annotations.rates import LAST_GENERATION
from mooring.errors import RecordError
from mooring.parsing import Value, dump, parse
from mooring.records import extract, rates_record, run_folder

HANDED_OVER = f"{run_folder.ADVERTISER}/rates"
RATES_LIST = f"{run_folder.ADVERTISER}/rates-listed"
STATES = f"{extract.FOLDER}/{rates_record.FOLDER}"
# 64 VFs take 5 KB, and the escapes of quotes some more.
MOST_BYTES = 32_768
_LONGEST_WHY = 4096


@dataclass(frozen=True, slots=True)
class HandedOverRates:
    """A pod's annotations about rates, as in its API object."""

    rates: str
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A VF on which the rates could not be set, and why."""

    pci: str
    why: str


@dataclass(frozen=True, slots=True)
class RatesState:
    """The recorded generation of a pod (``namespace/name``), and whether it is in force."""

    pod: str
    generation: int
    in_force: bool
    refusal: Refusal | None = None


def read_handed_over(text: str, name: str) -> HandedOverRates:
    """Read a file of the advertiser; ``name`` is its name in errors. Raise RecordError."""
    document = parse(text, name, RecordError).version(1).fields({"v", "rates", "signature"})
    return HandedOverRates(document.required("rates").string(), document.optional("signature", Value.string))


def dump_handed_over(rates: HandedOverRates) -> str:
    signature = {} if rates.signature is None else {"signature": rates.signature}
    return dump({"v": 1, "rates": rates.rates, **signature})


def read_state(text: str, name: str) -> RatesState:
    """Read a state that the server has written; ignore unknown fields. Raise RecordError."""
    document = parse(text, name, RecordError).version(1).fields()
    return RatesState(
        pod=document.required("pod").string(longest=512),
        generation=document.required("generation").integer(1, LAST_GENERATION),
        in_force=document.required("in_force").boolean(),
        refusal=document.optional("refused", _refusal),
    )


def dump_state(state: RatesState) -> str:
    document: dict[str, object] = {
        "v": 1,
        "pod": state.pod,
        "generation": state.generation,
        "in_force": state.in_force,
    }
    if state.refusal is not None:
        document["refused"] = {"pci": state.refusal.pci, "why": state.refusal.why[:_LONGEST_WHY]}
    return dump(document)


def _refusal(value: Value) -> Refusal:
    document = value.fields()
    return Refusal(names.address(document.required("pci")), document.required("why").string(longest=_LONGEST_WHY))
