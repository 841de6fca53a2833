"""Read and check fields of a network configuration; each function raises CniError 7 that names the field."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from cni.spec.skel import BAD_CONFIG, CniError


def refuse(name: str, rule: str) -> NoReturn:
    raise CniError(BAD_CONFIG, f"configuration field {name[:160]!r}{rule}")


def text(raw: Mapping[str, object], name: str, default: str) -> str:
    value = raw.get(name, default)
    return value if isinstance(value, str) else refuse(name, f": {value!r:.80} is not a string")


def folder(raw: Mapping[str, object], name: str, default: str) -> str:
    """Read an absolute path without ``..``."""
    value = text(raw, name, default)
    if not value.startswith("/") or "/../" in f"{value}/" or "\0" in value:
        refuse(name, f": {value[:80]!r} is not an absolute path")
    return value


def flag(raw: Mapping[str, object], name: str, *, default: bool) -> bool:
    value = raw.get(name, default)
    return value if isinstance(value, bool) else refuse(name, f": {value!r:.80} is neither true nor false")


def seconds(raw: Mapping[str, object], name: str, default: float, longest: float) -> float:
    value = raw.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= longest:
        refuse(name, f": {value!r:.80} is not from 0 to {longest:g} seconds")
    return float(value)


def mapping(value: object, name: str) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else refuse(name, f": {value!r:.80} is not an object")


def optional_mapping(raw: Mapping[str, object], name: str) -> Mapping[str, Any]:
    """Read an object; null or a missing field is an empty object."""
    return mapping(raw[name], name) if raw.get(name) is not None else {}


def mappings(value: object, name: str) -> Sequence[Mapping[str, Any]]:
    """Read a list of objects; null is an empty list."""
    if not isinstance(value, list | None):
        refuse(name, f": {value!r:.80} is not a list")
    return [mapping(item, f"{name}[{index}]") for index, item in enumerate(value or ())]


def strings(value: object, name: str) -> tuple[str, ...]:
    """Read a list of strings; null is an empty list."""
    if not isinstance(value, list | None) or not all(isinstance(item, str) for item in value or ()):
        refuse(name, f": {value!r:.80} is not a list of strings")
    return tuple(value or ())
