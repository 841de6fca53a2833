"""Apply a merge patch (RFC 7396) or a JSON patch (RFC 6902). The document given is never changed."""

from typing import Any

from devcluster.apiserver.objects import Object, copy, encode
from devcluster.apiserver.status import bad_request, rejected


def merge(target: Any, patch: Any) -> Any:
    """Return `target` with a merge patch applied; null removes a field."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def apply_operations(target: Object, operations: Any) -> Object:
    """Return `target` with a JSON patch applied; a failed test or a missing path is 422, all or nothing."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch must be a list of operations")
    document: Any = copy(target)
    for operation in operations:
        try:
            document = _apply(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise rejected() from error
    if not isinstance(document, dict):
        raise rejected()
    return document


def _apply(document: Any, operation: Object) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _add(document, path, operation["value"])
        case "remove":
            return _remove(document, path)
        case "replace":
            _get(document, path)
            return _replace(document, path, operation["value"])
        case "move":
            source = _pointer(operation["from"])
            value = _get(document, source)
            return _add(_remove(document, source), path, value)
        case "copy":
            return _add(document, path, _clone(_get(document, _pointer(operation["from"]))))
        case "test":
            if _get(document, path) != operation["value"]:
                raise ValueError(f"test failed at {operation['path']!r}")
            return document
        case unknown:
            raise ValueError(f"unknown operation {unknown!r}")


def _clone(value: Any) -> Any:
    return copy({"value": value})["value"]


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(f"no JSON pointer: {text!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _index(part: str, length: int) -> int:
    position = length if part == "-" else int(part)
    if not 0 <= position <= length:
        raise IndexError(part)
    return position


def _step(node: Any, part: str) -> Any:
    return node[_index(part, len(node))] if isinstance(node, list) else node[part]


def _get(document: Any, path: list[str]) -> Any:
    for part in path:
        document = _step(document, part)
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _get(document, path[:-1])
    if isinstance(parent, list):
        parent.insert(_index(path[-1], len(parent)), value)
    else:
        parent[path[-1]] = value
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _get(document, path[:-1])
    parent[_index(path[-1], len(parent)) if isinstance(parent, list) else path[-1]] = value
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    parent = _get(document, path[:-1])
    del parent[_index(path[-1], len(parent)) if isinstance(parent, list) else path[-1]]
    return document


def same(one: Object, other: Object) -> bool:
    """Return whether two objects are the same JSON; numbers compare by value, as after a round trip."""
    return one == other or encode(one) == encode(other)
