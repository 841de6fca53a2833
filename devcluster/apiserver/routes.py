"""Parse a request's path: `/api/v1/namespaces/t1/pods/p1/binding` and its like."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """An API path, read: the collection (name None) or the object, and its subresource.

    `namespace` is None both for kinds without namespaces and for a list over all of them.
    """

    group: str
    version: str
    plural: str
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None


def parse(path: str) -> Target | None:
    """Return the target of a decoded path, None if it is not a path of a collection or an object."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        return _target("", parts[1], parts[2:])
    if len(parts) >= 4 and parts[0] == "apis":
        return _target(parts[1], parts[2], parts[3:])
    return None


def group_of(path: str) -> str | None:
    """Return the API group that a decoded path is below, None if it is below none."""
    match path.strip("/").split("/"):
        case ["api", *_]:
            return ""
        case ["apis", group, *_]:
            return group
        case _:
            return None


# Below a namespace these are the namespace's own subresources; anything else is a collection in it.
_OF_NAMESPACES = frozenset({"status", "finalize"})


def _target(group: str, version: str, rest: list[str]) -> Target | None:
    in_namespace = rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in _OF_NAMESPACES
    namespace = rest[1] if in_namespace else None
    names = rest[2:] if in_namespace else rest
    if len(names) > 3:
        return None
    plural, name, subresource = (*names, None, None)[:3]
    assert plural is not None
    return Target(group, version, plural, namespace, name, subresource)
