"""Decide whether a 2xx answer is whole.

Our types have defaults for all that an object may leave out, so that ``{}`` decodes as anything: as the empty end of a
list, a pod without a node, a Lease that nobody holds. client-go refuses such answers: its decoder needs a kind
(``IsMissingKind`` in k8s.io/apimachinery, pkg/runtime/error.go), a ``Status`` other than Success is an error under any
HTTP code (``Result.Into`` in k8s.io/client-go, rest/request.go), and every stored object has a resourceVersion.
"""

import msgspec

from mooring.kube.events import Identity
from mooring.kube.failures import UNREADABLE, Status, Unknown
from mooring.parsing import shorten

_SUCCESS = "Success"
# An API server's Status has some 200 bytes; a longer answer is an object. Decoding this much takes 50 us.
_LONGEST_STATUS = 1 << 16


class _Kind(msgspec.Struct):
    kind: str = ""


class _Status(msgspec.Struct):
    kind: str = ""
    status: str | None = None
    code: int | None = None
    message: str | None = None


class _Object(msgspec.Struct):
    kind: str = ""
    metadata: Identity = Identity()


_kind = msgspec.json.Decoder(_Kind).decode
_status = msgspec.json.Decoder(_Status).decode
_object = msgspec.json.Decoder(_Object).decode


def check_read(call: str, body: bytes) -> None:
    """Raise Unknown if the answer to a GET is a ``Status`` of a failure; ``call`` names the request."""
    if len(body) <= _LONGEST_STATUS and b'"Status"' in body:
        _check_status(call, body)


def check_write(call: str, body: bytes) -> None:
    """Raise Unknown unless the answer to a write is an object with a kind, and no ``Status`` of a failure."""
    try:
        kind = _kind(body).kind
    except UNREADABLE:
        kind = ""
    if not kind:
        raise incomplete_answer(f"{call}: {shorten(body.decode(errors='replace'))} has no kind")
    if kind == "Status":
        _check_status(call, body)


def check_object(kind: str, body: bytes) -> bytes:
    """Return an answer that is a stored object of ``kind``: with name and resourceVersion; otherwise raise Unknown."""
    try:
        shown = _object(body)
    except UNREADABLE as unreadable:
        raise incomplete_answer(f"not a {kind}: {unreadable}") from unreadable
    if shown.kind != kind:
        raise incomplete_answer(f"kind {shown.kind!r}, not {kind!r}")
    if why := missing_field(shown.metadata):
        raise incomplete_answer(f"{kind}: {why} is empty")
    return body


def check_list(kind: str, resource_version: str) -> None:
    """Raise Unknown unless a page has a list's kind and resourceVersion."""
    if not kind.endswith("List"):
        raise incomplete_answer(f"kind {kind!r} is not a list")
    if not resource_version:
        raise incomplete_answer(f"{kind}: metadata.resourceVersion is empty")


def missing_field(identity: Identity) -> str:
    """Return the field that an object lacks and every stored object has; empty if it has them all."""
    if not identity.name:
        return "metadata.name"
    return "" if identity.resource_version else "metadata.resourceVersion"


def incomplete_answer(what: str) -> Unknown:
    """Return the error for an answer that came with a 2xx code and is not whole."""
    return Unknown(Status(200, message=f"incomplete answer: {what}"))


def _check_status(call: str, body: bytes) -> None:
    try:
        shown = _status(body)
    except UNREADABLE:
        # An object of which some field has this text.
        return
    if shown.kind == "Status" and shown.status != _SUCCESS:
        said = f"status={shown.status!r}, code={shown.code}, message={shorten(shown.message or '')}"
        raise incomplete_answer(f"{call}: Status with {said}")
