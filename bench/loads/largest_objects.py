"""Objects of the largest size that an API server takes, one for each list, map, text and number of each kind's fields.

`largest` walks the fields of a kind as the scheduler decodes it, so that a new field is filled without a change here.
A field is filled until the whole object has so many bytes of JSON; everything else of the object is what a valid
object has. ``version`` makes the contents of two objects differ.
"""

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Union, get_args, get_origin

import msgspec

# What etcd takes of one object. Source: etcd's --max-request-bytes, 1.5 MiB by default.
LARGEST = 3 << 19
Json = dict[str, Any]
# Values by the field's name where a text of any kind would make the object invalid, so that little of it is read.
_VALID: Mapping[str, Any] = {
    "operator": "In",
    "whenUnsatisfiable": "DoNotSchedule",
    "effect": "NoSchedule",
    "protocol": "UDP",
    "nodeAffinityPolicy": "Honor",
    "nodeTaintsPolicy": "Honor",
    "restartPolicy": "Always",
    "weight": 7,
    "maxSkew": 2,
    "minDomains": 1,
    "apiVersion": "apps/v1",
    "status": "True",
}
# A number that grows with each element: ports of one pod differ.
_COUNTED = {"hostPort": 1 << 16}
_SHORT = 40
_DIGITS = 4000


# Makes a field's value of so many bytes, different for each version.
_Make = Callable[[int, int], Any]
_Filling = tuple[tuple[str, ...], str, _Make]


@dataclass(frozen=True, slots=True)
class Filled:
    """A way to fill one field of an object: ``how`` says with what."""

    base: Json
    path: tuple[str, ...]
    how: str
    make: _Make

    @property
    def name(self) -> str:
        return f"{'.'.join(self.path)} {self.how}"

    def document(self, version: int = 0, size: int = LARGEST) -> Json:
        """Return the object with so many bytes of JSON, at the most; the contents of two versions differ."""
        return _with(self.base, self.path, self.make(size - len(msgspec.json.encode(self.base)) - 64, version))


def largest(kind: type[Any], base: Json) -> Iterator[Filled]:
    """Yield each way to fill one field of ``base``, an object of this kind."""
    for path, how, make in _fillings(kind, ()):
        yield Filled(base, path, how, make)


def _with(base: Json, path: tuple[str, ...], value: Any) -> Json:
    first, *rest = path
    inner = base.get(first)
    if rest:
        return {**base, first: _with(inner if isinstance(inner, dict) else {}, tuple(rest), value)}
    return {**base, first: {**inner, **value} if isinstance(inner, dict) and isinstance(value, dict) else value}


def _fillings(kind: Any, path: tuple[str, ...]) -> Iterator[_Filling]:
    for field in msgspec.structs.fields(kind):
        inner, here = _plain(field.type), (*path, field.encode_name)
        if _is_struct(inner):
            yield from _fillings(inner, here)
        else:
            yield from ((here, how, make) for how, make in _ways(inner, field.encode_name))


def _ways(kind: Any, name: str) -> Iterator[tuple[str, _Make]]:
    """Yield the ways to fill a field of this type."""
    if get_origin(kind) is dict:
        yield from _ways_of_map(get_args(kind)[1], name)
    elif get_origin(kind) is list:
        yield from _ways_of_list(_plain(get_args(kind)[0]), name)
    elif str in _members(kind):
        yield "long", _text
    if int in _members(kind):
        yield "of many digits", lambda _, version: int(f"{version + 1}" + "9" * _DIGITS)


def _ways_of_map(value: Any, name: str) -> Iterator[tuple[str, _Make]]:
    def many(size: int, version: int) -> Json:
        return dict(_until(size, lambda number: (_key(number, version), _small(value, name, number, version))))

    def long_numbers(size: int, version: int) -> Json:
        return dict(_until(size, lambda number: (_key(number, version), "9" * _DIGITS + f"{number}")))

    yield "of many", many
    yield "with a long value", lambda size, version: {_key(0, version): _text(size, version)}
    if int in _members(value):
        yield "of long numbers", long_numbers


def _ways_of_list(element: Any, name: str) -> Iterator[tuple[str, _Make]]:
    yield "of many", lambda size, version: list(_until(size, lambda one: _small(element, name, one, version)))
    if not _is_struct(element):
        return
    yield "of many full", lambda size, version: list(_until(size, lambda one: _full(element, one, version)))
    for path, how, make in _fillings(element, ()):
        yield f"with one {'.'.join(path)} {how}", partial(_single, element, path, make)


def _single(element: Any, path: tuple[str, ...], make: _Make, size: int, version: int) -> list[Any]:
    return [_with(_small(element, "", 0, version), path, make(size, version))]


def _key(number: int, version: int) -> str:
    return f"k{number}.example/v{version}"


def _until(size: int, make: Callable[[int], Any]) -> Iterator[Any]:
    # Five digits each, so that all are as long as the first.
    first = 10_000
    return map(make, range(first, first + max(size // (len(msgspec.json.encode(make(first))) + 1), 1)))


def _text(size: int, version: int) -> str:
    return f"v{version}-" + "x" * (size - 8)


def _small(kind: Any, name: str, number: int, version: int) -> Any:
    """Return a small value of a type, different for each number: of a struct, what it cannot be without."""
    kind = _plain(kind)
    if _is_struct(kind):
        required = (one for one in msgspec.structs.fields(kind) if one.required or one.encode_name in _NEEDED)
        return {one.encode_name: _small(one.type, one.encode_name, number, version) for one in required}
    return _value(kind, name, number, version)


def _full(kind: Any, number: int, version: int) -> Any:
    """Return a struct with each of its fields, lists and maps with one entry."""
    kind = _plain(kind)
    if _is_struct(kind):
        return {one.encode_name: _full_field(one, number, version) for one in msgspec.structs.fields(kind)}
    return _value(kind, "", number, version)


def _full_field(field: Any, number: int, version: int) -> Any:
    kind, name = _plain(field.type), field.encode_name
    if get_origin(kind) is dict:
        return {_key(number, version): _small(get_args(kind)[1], name, number, version)}
    if get_origin(kind) is list:
        return [_full(get_args(kind)[0], number, version)]
    return _full(kind, number, version) if _is_struct(kind) else _value(kind, name, number, version)


# Fields without which an element says nothing, though they may be missing.
_NEEDED = ("topologyKey", "whenUnsatisfiable", "hostPort", "values", "weight", "image", "resources", "podAffinityTerm")


def _value(kind: Any, name: str, number: int, version: int) -> Any:
    if name in _VALID:
        return _VALID[name]
    if name in _COUNTED:
        return 1 + number % (_COUNTED[name] - 1)
    return _value_of_any_name(kind, name, number, version)


def _value_of_any_name(kind: Any, name: str, number: int, version: int) -> Any:
    if get_origin(kind) is list:
        return [_value(_plain(get_args(kind)[0]), "", number, version)]
    if get_origin(kind) is dict:
        return {_key(number, version): _value(_plain(get_args(kind)[1]), name, number, version)}
    members = _members(kind)
    if int in members and str in members:
        return f"{number + 1}"
    if bool in members:
        return True
    return number + 1 if int in members else f"{name[:8].lower()}{number}-{version}"


def _plain(kind: Any) -> Any:
    """Return a type without None, and without what annotates it."""
    if hasattr(kind, "__metadata__"):
        return _plain(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        members = [one for one in get_args(kind) if one is not type(None)]
        return _plain(members[0]) if len(members) == 1 else kind
    return kind


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
