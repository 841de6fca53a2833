"""Check metadata by apimachinery's rules: names, label and annotation syntax, the size of all annotations.

What a Binding writes is not checked by a real server, so it is not here either; the next update of that pod is.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from devcluster.apiserver.objects import Object, section
from devcluster.apiserver.status import Cause

ANNOTATIONS_MAX = 262_144  # In bytes, the sum over keys and values.

_NAME_PART = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_PATH_SEGMENT_REFUSED = frozenset({".", ".."})

_NAME_PART_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

# Kinds whose names are path segments and not DNS subdomains.
_PATH_NAMED = frozenset({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "FlowSchema"})


def metadata_causes(kind: str, metadata: Object) -> list[Cause]:
    """Return every rule that the metadata breaks."""
    return [
        *_name_causes(kind, metadata),
        *_label_causes(section(metadata, "labels")),
        *annotation_causes(section(metadata, "annotations")),
    ]


def _name_causes(kind: str, metadata: Object) -> Iterator[Cause]:
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        yield Cause("FieldValueRequired", "Required value: name or generateName is required", "metadata.name")
    elif kind in _PATH_NAMED:
        if name in _PATH_SEGMENT_REFUSED or "/" in name or "%" in name:
            yield _value(name, "may not be '.', '..' or contain '/' or '%'", "metadata.name")
    elif len(name) > 253 or not _SUBDOMAIN.match(name):
        yield _value(name, _SUBDOMAIN_RULE, "metadata.name")


def _value(value: object, rule: str, field: str) -> Cause:
    return Cause("FieldValueInvalid", f'Invalid value: "{value}": {rule}', field)


def _label_causes(labels: Object) -> Iterator[Cause]:
    yield from _key_causes(labels, "metadata.labels")
    for value in labels.values():
        if not isinstance(value, str) or len(value) > 63 or (value and not _NAME_PART.match(value)):
            yield _value(value, _LABEL_RULE, "metadata.labels")


def annotation_causes(annotations: Object) -> Iterator[Cause]:
    """Yield the rules that annotations break."""
    yield from _key_causes(annotations, "metadata.annotations")
    for value in annotations.values():
        if not isinstance(value, str):
            yield Cause("FieldValueTypeInvalid", f"Invalid value: {value!r}: must be a string", "metadata.annotations")
    if _size(annotations) > ANNOTATIONS_MAX:
        rule = f"Too long: may not be more than {ANNOTATIONS_MAX} bytes"
        yield Cause("FieldValueTooLong", rule, "metadata.annotations")


def _size(annotations: Object) -> int:
    return sum(_bytes(key) + _bytes(value) for key, value in annotations.items())


def _bytes(text: Any) -> int:
    return len(text.encode()) if isinstance(text, str) else 0


def _key_causes(keys: Iterable[str], field: str) -> Iterator[Cause]:
    for key in keys:
        prefix, slash, name = key.rpartition("/")
        if not _NAME_PART.match(name) or len(name) > 63:
            yield _value(key, _NAME_PART_RULE, field)
        elif slash and (len(prefix) > 253 or not _SUBDOMAIN.match(prefix)):
            yield _value(key, f"prefix part {_SUBDOMAIN_RULE}", field)
