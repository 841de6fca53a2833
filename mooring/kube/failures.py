"""Errors of requests to the API server, named by what the caller does about them.

NotFound   the object does not exist                   Throttled  wait `retry_after_s`, then repeat
Conflict   another write was first: read, decide again Refused    this request always fails: change it or give up
Gone       list again                                  Unknown    it may have succeeded or not: repeat or read
Denied     nothing was written: inform the object's owner, and try again later
"""

# ruff: noqa: N818 - named by what the caller does

import re
from dataclasses import dataclass

import msgspec


class _Details(msgspec.Struct):
    kind: str | None = None


class _Status(msgspec.Struct):
    kind: str | None = None
    code: int = 500
    message: str | None = None
    reason: str | None = None
    details: _Details | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The API server's answer to a failed request; ``kind`` is ``details.kind``, empty without one.

    ``is_page``: the body is not a ``Status`` but a page of a proxy, or of the API server for an unknown path.
    """

    code: int
    reason: str = ""
    message: str = ""
    kind: str = ""
    is_page: bool = False


class KubeError(Exception):
    """A request failed; ``status`` has code 0 if there was no answer."""

    def __init__(self, status: Status) -> None:
        super().__init__(f"{status.code} {status.reason}: {status.message}" if status.code else status.message)
        self.status = status


class NotFound(KubeError):
    """404."""


class Conflict(KubeError):
    """409: a precondition failed, or the object exists already."""


class Gone(KubeError):
    """410: the resource version or the continue token is too old."""


class Throttled(KubeError):
    """429: nothing was done; repeat after ``retry_after_s`` seconds, which are at most 32."""

    def __init__(self, status: Status, retry_after_s: float) -> None:
        super().__init__(status)
        self.retry_after_s = retry_after_s


class Refused(KubeError):
    """Any other 4xx, or a redirect: nothing was done, and a repetition would fail, too."""


class Denied(Refused):
    """Admission rejected the write, or could not call its webhook, with any code: nothing was written.

    The write can succeed later, when the webhook answers again, or its rule or the object changes.
    """


class Unknown(KubeError):
    """5xx, 408, a timeout or a lost connection: a write may have succeeded or not."""


# The errors of decoding; a proxy's answer can contain any bytes, with any nesting.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_BY_CODE = {404: NotFound, 409: Conflict, 410: Gone}
# Status codes that only proxies send, for a request that was too late or too early.
_NOT_THE_SERVERS = (408, 425)
_LONGEST_MESSAGE = 2_000
# A longer wait is not the API server's: it sends at most 32 s (maxRetryAfter in k8s.io/apiserver 1.36,
# pkg/util/flowcontrol/dropped_requests_tracker.go). A proxy can send any number, and a pod must not wait a day for it.
_LONGEST_WAIT_S = 32.0
# Messages of kube-apiserver's admission, which comes before storage. The first one is for a webhook's own answer, with
# a code that the webhook chooses. Sources, in k8s.io/apiserver 1.36: pkg/admission/plugin/webhook/errors/statuserror.go
# (ToStatusErr), pkg/util/webhook/error.go (ErrCallingWebhook, which is an InternalError here) and
# pkg/admission/plugin/policy, validating/dispatcher.go and generic/policy_dispatcher.go.
_DENIED = re.compile(
    r'admission webhook "[^"]+" denied the request\b'
    r'|Internal error occurred: (failed calling|admission) webhook "[^"]+"'
    r"|(.+ is forbidden: )?(ValidatingAdmissionP|p)olicy ['\"][^'\"]+['\"]( with binding '[^']+')? denied request: ",
    re.DOTALL,
).match


def failure(code: int, body: bytes, retry_after: str | None = None) -> KubeError:
    """Return the error for an answer that is not 2xx; the body should be a ``Status`` but can be anything."""
    status = read_status(code, body)
    if not status.is_page and _DENIED(status.message):
        return Denied(status)
    if code == 429:
        return Throttled(status, _seconds(retry_after))
    if code >= 500 or code in _NOT_THE_SERVERS:
        return Unknown(status)
    return _BY_CODE.get(code, Refused)(status)


def of_object(error: KubeError) -> KubeError:
    """Return the error of a request for an object; a 404 with a proxy's page becomes Unknown."""
    return Unknown(error.status) if isinstance(error, NotFound) and error.status.is_page else error


def failure_of(status: bytes) -> KubeError:
    """Return the error for a ``Status`` object, such as the one in an ERROR event of a watch."""
    try:
        code = msgspec.json.decode(status, type=_Status).code
    except UNREADABLE:
        code = 500
    return failure(code, status)


def read_status(code: int, body: bytes) -> Status:
    try:
        answer = msgspec.json.decode(body, type=_Status)
    except UNREADABLE:
        return Status(code, "", body[:_LONGEST_MESSAGE].decode(errors="replace"), is_page=True)
    kind, is_page = (answer.details.kind if answer.details else None) or "", answer.kind != "Status"
    return Status(code, answer.reason or "", (answer.message or "")[:_LONGEST_MESSAGE], kind, is_page)


def _seconds(retry_after: str | None) -> float:
    # The API server sends seconds. For a date, which a proxy may send, wait one second.
    seconds = float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else 1.0
    return min(seconds, _LONGEST_WAIT_S)
