"""Read the few objects that come as protobuf and not as JSON: Bindings, and what kubectl's `create` and `drain` send.

The envelope is apimachinery's runtime.Unknown behind four magic bytes; field numbers are those of the generated.proto
files of apimachinery and k8s.io/api. Every other kind is answered with 415.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from devcluster.apiserver.objects import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


@dataclass(frozen=True, slots=True)
class Field:
    """A field's JSON name and how its bytes are read."""

    name: str
    kind: Literal["text", "integer", "map", "message", "texts"]
    fields: "Mapping[int, Field] | None" = None


_METADATA = {
    1: Field("name", "text"),
    2: Field("generateName", "text"),
    3: Field("namespace", "text"),
    5: Field("uid", "text"),
    11: Field("labels", "map"),
    12: Field("annotations", "map"),
}
_PRECONDITIONS = {1: Field("uid", "text"), 2: Field("resourceVersion", "text")}
_DELETE_OPTIONS = {
    1: Field("gracePeriodSeconds", "integer"),
    2: Field("preconditions", "message", _PRECONDITIONS),
    4: Field("propagationPolicy", "text"),
    5: Field("dryRun", "texts"),
}
_BOUND = {1: Field("kind", "text"), 2: Field("apiVersion", "text"), 3: Field("name", "text"), 4: Field("uid", "text")}
_TARGET = {
    1: Field("kind", "text"),
    2: Field("namespace", "text"),
    3: Field("name", "text"),
    4: Field("uid", "text"),
    5: Field("apiVersion", "text"),
}
_TOKEN = {
    1: Field("audiences", "texts"),
    3: Field("boundObjectRef", "message", _BOUND),
    4: Field("expirationSeconds", "integer"),
}
_KINDS: Mapping[str, Mapping[int, Field]] = {
    "Namespace": {1: Field("metadata", "message", _METADATA)},
    "ServiceAccount": {1: Field("metadata", "message", _METADATA)},
    "ConfigMap": {1: Field("metadata", "message", _METADATA), 2: Field("data", "map")},
    "Binding": {1: Field("metadata", "message", _METADATA), 2: Field("target", "message", _TARGET)},
    "Eviction": {
        1: Field("metadata", "message", _METADATA),
        2: Field("deleteOptions", "message", _DELETE_OPTIONS),
    },
    "TokenRequest": {1: Field("metadata", "message", _METADATA), 2: Field("spec", "message", _TOKEN)},
}
_TYPE_META = {1: Field("apiVersion", "text"), 2: Field("kind", "text")}


def decode(body: bytes) -> Object | None:
    """Return the object as JSON would give it, None for a kind that is not read; raise ValueError if broken."""
    if not body.startswith(_MAGIC):
        raise ValueError("no Kubernetes protobuf: the magic bytes are missing")
    envelope = dict(_wire(body[len(_MAGIC) :]))
    head = _message(_bytes(envelope.get(1, b"")), _TYPE_META)
    fields = _KINDS.get(head.get("kind", ""))
    return {**head, **_message(_bytes(envelope.get(2, b"")), fields)} if fields is not None else None


def _message(data: bytes, fields: Mapping[int, Field]) -> Object:
    read: Object = {}
    for number, value in _wire(data):
        field = fields.get(number)
        if field is not None:
            _put(read, field, value)
    return {key: value for key, value in read.items() if value not in ("", {})}


def _put(read: Object, field: Field, value: int | bytes) -> None:
    match field.kind:
        case "integer":
            read[field.name] = value
        case "text":
            read[field.name] = _bytes(value).decode()
        case "texts":
            read.setdefault(field.name, []).append(_bytes(value).decode())
        case "map":
            pair = dict(_wire(_bytes(value)))
            read.setdefault(field.name, {})[_bytes(pair.get(1, b"")).decode()] = _bytes(pair.get(2, b"")).decode()
        case "message":
            assert field.fields is not None
            read[field.name] = _message(_bytes(value), field.fields)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("protobuf: a number where bytes are due")  # noqa: TRY004 - of the data, not of a caller
    return value


def _wire(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield field numbers and values of the two wire types in use: varint and length-delimited."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        value, position = _varint(data, position)
        if wire_type == 0:
            yield number, value
        elif wire_type == 2 and position + value <= len(data):
            yield number, data[position : position + value]
            position += value
        else:
            raise ValueError(f"protobuf: field {number} of wire type {wire_type} cannot be read")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if byte < 0x80:
            return value, position
    raise ValueError("protobuf: it ends inside a number")
