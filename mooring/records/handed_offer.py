"""The offer that the cluster hands to a node, and the result of `init` for it.

    <state>/offer/next.yaml    what the advertiser's init container hands over, until `init` on the host takes it
    <state>/offer/offer.yaml   what `init` took last: at a boot it is used without an API server
    <run>/init/result.json     {"v":1,"state":"done","offer":"<SHA-256 of its text>","failures":["enp4s0f0: …"]}
    <run>/init/lock            held by each `init` while it runs (flock, shared), so it is free after a run was killed

`init` writes the result as ``running`` before it takes an offer, and as ``done`` at its end. So the result is for an
offer that was handed over once ``next.yaml`` no longer exists and a ``done`` result has its digest. Without an offer
the field ``offer`` is absent. A result ``running`` with a free lock belongs to a run that was killed. Every boot and
every installation runs `init`, so a node without a result has no `mooring-init.service`.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mooring.errors import RecordError
from mooring.parsing import Value, dump, parse

FOLDER = "offer"
NEXT, CURRENT = f"{FOLDER}/next.yaml", f"{FOLDER}/offer.yaml"
RESULT, LOCK = "init/result.json", "init/lock"
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MOST_FAILURES, _LONGEST = 64, 1000


@dataclass(frozen=True, slots=True)
class InitResult:
    """The result of the last run of `init`: the digest of its offer, and the failures."""

    state: Literal["running", "done"]
    offer: str | None = None
    failures: tuple[str, ...] = ()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def final_result(text: str | None, failures: Sequence[object]) -> InitResult:
    """Return the result of a run with the offer ``text``; failures beyond the record's limit are only in the log."""
    texts = tuple(str(failure)[:_LONGEST] for failure in failures[:_MOST_FAILURES])
    return InitResult("done", None if text is None else digest(text), texts)


def read_init_result(text: str) -> InitResult:
    """Read the record; raise RecordError."""
    document = parse(text, RESULT, RecordError).version(1).fields()
    return InitResult(
        state=document.required("state").choice("running", "done"),
        offer=document.optional("offer", lambda offer: offer.match(_DIGEST, "a SHA-256 in hexadecimal")),
        failures=document.optional("failures", _failures) or (),
    )


def dump_init_result(result: InitResult) -> str:
    fields: dict[str, object] = {"v": 1, "state": result.state}
    fields |= {} if result.offer is None else {"offer": result.offer}
    return dump(fields | ({"failures": list(result.failures)} if result.failures else {}))


def _failures(value: Value) -> tuple[str, ...]:
    return tuple(failure.string(_LONGEST) for failure in value.items(_MOST_FAILURES))
