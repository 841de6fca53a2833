"""Errors in kubectl's words.

Source: StandardErrorMessage and checkErr in kubectl's pkg/cmd/util/helpers.go.
"""

from collections.abc import Iterable

from mooring.kube.failures import KubeError


def not_found(resource: str, name: str) -> str:
    """Return what an API server says of a name that no object has."""
    return f'Error from server (NotFound): {resource} "{name}" not found'


def all_not_found(resource: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(not_found(resource, name) for name in names)


def line_of(failed: Exception) -> str:
    """Return the line on stderr for what ended a command."""
    if not isinstance(failed, KubeError):
        text = str(failed)
        return text if text.startswith(("error: ", "Error from server")) else f"error: {text}"
    status = failed.status
    if not status.code:
        return f"Unable to connect to the server: {status.message}"
    if status.reason == "Unauthorized":
        return f"error: You must be logged in to the server ({status.message or status.reason})"
    reason = f" ({status.reason})" if status.reason else ""
    return f"Error from server{reason}: {status.message or status.code}"
