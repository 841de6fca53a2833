"""API errors, each named by what a client does about it, as the `Status` bodies that a real server sends."""

from collections.abc import Sequence
from dataclasses import dataclass

from devcluster.apiserver.objects import Object


@dataclass(frozen=True, slots=True)
class Cause:
    """One rule that an object breaks: metav1.StatusCause."""

    reason: str
    message: str
    field: str

    def as_object(self) -> Object:
        """Write it as it stands in `details.causes`."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


class ApiError(Exception):
    """An answer that is a failure: HTTP code, reason (may be empty), message and details of a `Status`."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def body(self) -> Object:
        """Write the `Status` in the field order of a real server."""
        status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        status["message"] = self.message
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def success(code: int, details: Object | None = None) -> Object:
    """Write the `Status` of a verb that returns no object."""
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = details
    else:
        status["code"] = code
    return status


def details(group: str, kind: str, name: str | None = None) -> Object:
    """Write `details`: a real server leaves out an empty name and an empty group."""
    written: Object = {"name": name} if name else {}
    if group:
        written["group"] = group
    return {**written, "kind": kind}


def _qualified(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def not_found(group: str, plural: str, name: str) -> ApiError:
    """Answer 404 for an object."""
    message = f'{_qualified(group, plural)} "{name}" not found'
    return ApiError(404, "NotFound", message, details(group, plural, name))


def no_such_path() -> ApiError:
    """Answer 404 for a path or a kind below a group that is served."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


class NoSuchPageError(ApiError):
    """404 for whatever is below no group that is served: over HTTP a plain text, not a `Status`."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")


def already_exists(group: str, plural: str, name: str) -> ApiError:
    """Answer 409 to a create."""
    message = f'{_qualified(group, plural)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str) -> ApiError:
    """Answer 409 to a write; `plural` may name a subresource (`pods/binding`)."""
    message = f'Operation cannot be fulfilled on {_qualified(group, plural)} "{name}": {why}'
    return ApiError(409, "Conflict", message, details(group, plural, name))


def failed_precondition(plural: str, namespace: str, name: str, what: str, given: str, actual: str) -> str:
    """Return the message of a 409 for a precondition `what` (UID, ResourceVersion) that failed: etcd3's store."""
    failed = f"Precondition failed: {what} in precondition: {given}, {what} in object meta: {actual}"
    where = f"Code: 4, Key: /registry/{plural}/{namespace}/{name}, ResourceVersion: 0"
    return f"StorageError: invalid object, {where}, AdditionalErrorMsg: {failed}"


def unparsed(number: str) -> str:
    """Return Go's message for a text that is not an unsigned number."""
    return f'strconv.ParseUint: parsing "{number}": invalid syntax'


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """Answer 422; `details.kind` is the kind here, not the plural."""
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    written = {**details(group, kind, name), "causes": [cause.as_object() for cause in causes]}
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {listed}', written)


def rejected() -> ApiError:
    """Answer 422 to a JSON patch that does not apply."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def bad_request(message: str) -> ApiError:
    """Answer 400."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """Return the 401 for a token that does not exist, or has expired."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(group: str, plural: str, name: str, why: str) -> ApiError:
    """Answer 403; the name is empty where the request is for a collection."""
    subject = f'{_qualified(group, plural)} "{name}"' if name else _qualified(group, plural)
    message = f"{subject} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, details(group, plural, name))


def expired(message: str) -> ApiError:
    """Answer 410: the resource version or the continue token is older than what is kept."""
    return ApiError(410, "Expired", message)


def too_large_version(asked: int, current: int) -> ApiError:
    """Answer 504 to a list at a resource version that does not exist yet."""
    cause = Cause("ResourceVersionTooLarge", "Too large resource version", "")
    written: Object = {"causes": [cause.as_object()], "retryAfterSeconds": 1}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiError(504, "Timeout", message, written)


def method_not_allowed() -> ApiError:
    """Answer 405."""
    text = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", text, {})


def unsupported_media_type(content_type: str, accepted: Sequence[str]) -> ApiError:
    """Answer 415."""
    text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiError(415, "UnsupportedMediaType", f"{text} (was {content_type!r})", {})
