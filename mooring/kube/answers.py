"""Decide whether a 2xx answer is whole.

Our types have defaults for all that an object may leave out, so that ``{}`` decodes as anything: as the empty end of a
list, a pod without a node, a Lease that nobody holds. client-go refuses such answers: its decoder needs a kind
(``IsMissingKind`` in k8s.io/apimachinery, pkg/runtime/error.go), a ``Status`` other than Success is an error under any
HTTP code (``Result.Into`` in k8s.io/client-go, rest/request.go), and every stored object has a resourceVersion.
"""

import msgspec

from mooring.kube.events import Identity
from mooring.kube.failures import Status, Unknown
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
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        kind = ""
    if not kind:
        raise _unknown(f"{call}: the answer {shorten(body.decode(errors='replace'))} is no object with a kind")
    if kind == "Status":
        _check_status(call, body)


def check_object(kind: str, body: bytes) -> bytes:
    """Return an answer that is a stored object of ``kind``: with name and resourceVersion; otherwise raise Unknown."""
    try:
        shown = _object(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as unreadable:
        raise _unknown(f"the answer is no {kind}: {unreadable}") from unreadable
    if shown.kind != kind:
        raise _unknown(f"the answer is of kind {shown.kind!r}, not a {kind}")
    if why := incomplete(shown.metadata):
        raise _unknown(f"the answer is no whole {kind}: {why}")
    return body


def check_list(kind: str, resource_version: str) -> None:
    """Raise Unknown unless a page has a list's kind and resourceVersion."""
    if not kind.endswith("List"):
        raise _unknown(f"the answer is of kind {kind!r}, not a list")
    if not resource_version:
        raise _unknown(f"the answer is no whole {kind}: metadata.resourceVersion is empty")


def incomplete(identity: Identity) -> str:
    """Return what an object lacks that every stored object has; empty if it has it."""
    if not identity.name:
        return "metadata.name is empty"
    return "" if identity.resource_version else f"{identity.name!r}: metadata.resourceVersion is empty"


def _check_status(call: str, body: bytes) -> None:
    try:
        shown = _status(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # An object of which some field has this text.
        return
    if shown.kind == "Status" and shown.status != _SUCCESS:
        said = f"status {shown.status!r}, code {shown.code}, message {shorten(shown.message or '')}"
        raise _unknown(f"{call}: a Status that is no success came with HTTP code 2xx: {said}")


def _unknown(message: str) -> Unknown:
    return Unknown(Status(200, message=message))
