"""Check that a 2xx answer is complete.

Our types have defaults for all fields that can be absent, so ``{}`` decodes as anything: the empty end of a list, a pod
without a node, a Lease without a holder. client-go rejects such answers: its decoder needs a kind (``IsMissingKind`` in
k8s.io/apimachinery, pkg/runtime/error.go), and a ``Status`` other than Success is an error with any HTTP code
(``Result.Into`` in k8s.io/client-go, rest/request.go). Every stored object has a resourceVersion.
"""

from typing import TypeVar

import msgspec

from mooring.kube.events import Identity
from mooring.kube.failures import UNREADABLE, Status, Unknown
from mooring.parsing import shorten

T = TypeVar("T")
_SUCCESS = "Success"
# An API server's Status has about 200 bytes; a longer answer is an object. Decoding this many bytes takes 50 us.
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
    """Raise Unknown if the answer to a GET is a ``Status`` of a failure; ``call`` is the request, for the message."""
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
    """Return the answer if it is a stored object of ``kind`` with name and resourceVersion; raise Unknown otherwise."""
    try:
        stored_object = _object(body)
    except UNREADABLE as error:
        raise incomplete_answer(f"not a {kind}: {error}") from error
    if stored_object.kind != kind:
        raise incomplete_answer(f"kind {stored_object.kind!r}, not {kind!r}")
    if why := missing_field(stored_object.metadata):
        raise incomplete_answer(f"{kind}: {why} is empty")
    return body


def decode_object(kind: type[T], body: bytes) -> T:
    """Return the stored object in an answer; ``kind`` is named like it. Raise Unknown if it cannot be read."""
    check_object(kind.__name__, body)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise incomplete_answer(f"not a {kind.__name__}: {error}") from error


def check_list(kind: str, resource_version: str) -> None:
    """Raise Unknown unless a page has a list's kind and resourceVersion."""
    if not kind.endswith("List"):
        raise incomplete_answer(f"kind {kind!r} is not a list")
    if not resource_version:
        raise incomplete_answer(f"{kind}: metadata.resourceVersion is empty")


def missing_field(identity: Identity) -> str:
    """Return the required field that an object lacks, empty if it has all fields of a stored object."""
    if not identity.name:
        return "metadata.name"
    return "" if identity.resource_version else "metadata.resourceVersion"


def incomplete_answer(fault: str) -> Unknown:
    """Return the error for an incomplete answer with a 2xx code."""
    return Unknown(Status(200, message=f"incomplete answer: {fault}"))


def _check_status(call: str, body: bytes) -> None:
    try:
        status = _status(body)
    except UNREADABLE:
        # The body is an object with this text in some field.
        return
    if status.kind == "Status" and status.status != _SUCCESS:
        summary = f"status={status.status!r}, code={status.code}, message={shorten(status.message or '')}"
        raise incomplete_answer(f"{call}: Status with {summary}")
