"""Read JSON strictly: check every value once, and name the place in every error.

For any text it returns checked values or raises the given subclass of `ContractError`, and nothing else (fuzzed). In
addition to invalid JSON it rejects NaN and Infinity, duplicate fields, excessive numbers and nesting, and strings that
are not valid Unicode, because a lone surrogate cannot be written as UTF-8.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from mooring.errors import ContractError

T = TypeVar("T")
Choice = TypeVar("Choice", bound=str)

# The API server's limit of bytes in all annotations of an object, keys and values.
MAX_BYTES = 262_144
_LONGEST_STEP = 80


class Value:
    """A JSON value and its place: the document and the path in it."""

    __slots__ = ("_above", "_step", "error", "key", "raw")

    def __init__(
        self, raw: object, key: str, error: type[ContractError], above: "Value | None" = None, step: str = ""
    ) -> None:
        self.raw = raw
        self.key = key
        self.error = error
        self._above = above
        self._step = step

    @property
    def path(self) -> str:
        """Return the path in the document; long steps are shortened, so that the error stays readable."""
        path, step = self._above.path if self._above is not None else "", self._step
        step = step if len(step) <= _LONGEST_STEP else f"{step[: _LONGEST_STEP - 3]}..."
        return f"{path}.{step}" if path and not step.startswith("[") else path + step

    def fail(self, rule: str) -> NoReturn:
        raise self.error(self.key, self.path, rule)

    def at(self, step: str, raw: object) -> "Value":
        """Return the value ``raw`` at ``step`` below this one."""
        return Value(raw, self.key, self.error, self, step)

    def with_raw(self, raw: object) -> "Value":
        """Return the value ``raw`` with this value's place."""
        return Value(raw, self.key, self.error, self._above, self._step)

    def integer(self, low: int, high: int) -> int:
        if type(self.raw) is not int or not low <= self.raw <= high:
            self.fail(f"{shorten(self.raw)} is not an integer from {low} to {high}")
        return self.raw

    def boolean(self) -> bool:
        if type(self.raw) is not bool:
            self.fail(f"{shorten(self.raw)} is neither true nor false")
        return self.raw

    def string(self, longest: int = MAX_BYTES) -> str:
        if type(self.raw) is not str or len(self.raw) > longest:
            self.fail(f"{shorten(self.raw)} is not a string of at most {longest} characters")
        return self.raw

    def match(self, pattern: re.Pattern[str], rule: str) -> str:
        if type(self.raw) is not str or pattern.fullmatch(self.raw) is None:
            self.fail(f"{shorten(self.raw)} is not {rule}")
        return self.raw

    def choice(self, *choices: Choice) -> Choice:
        match = next((choice for choice in choices if choice == self.raw), None)
        if match is None:
            self.fail(f"{shorten(self.raw)} is not one of {', '.join(choices)}")
        return match

    def items(self, limit: int) -> Sequence["Value"]:
        if type(self.raw) is not list:
            self.fail(f"{shorten(self.raw)} is not a list")
        if len(self.raw) > limit:
            self.fail(f"has {len(self.raw)} entries, more than {limit}")
        return [self.at(f"[{index}]", raw) for index, raw in enumerate(self.raw)]

    def fields(self, names: Iterable[str] | None = None) -> "Fields":
        """Read the value as an object; with ``names``, reject any other field."""
        if type(self.raw) is not dict:
            self.fail(f"{shorten(self.raw)} is not an object")
        if names is not None and (unknown_names := sorted(self.raw.keys() - names)):
            self.at(unknown_names[0], None).fail(f"unknown field; known fields are {', '.join(sorted(names))}")
        return Fields(self, self.raw)

    def version(self, number: int) -> "Value":
        """Check the document's version in ``v``."""
        self.fields().required("v").integer(number, number)
        return self


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a JSON object, each read by name."""

    whole: Value
    raw: Mapping[str, object]

    def required(self, name: str) -> Value:
        if name not in self.raw:
            self.whole.fail(f"field {name!r} is missing")
        return self.whole.at(name, self.raw[name])

    def optional(self, name: str, read: Callable[[Value], T]) -> T | None:
        return read(self.whole.at(name, self.raw[name])) if name in self.raw else None

    def items(self) -> list[tuple[str, Value]]:
        return [(name, self.whole.at(name, raw)) for name, raw in self.raw.items()]


def parse(text: str, key: str, error: type[ContractError]) -> Value:
    """Parse a JSON document called ``key``; raise ``error`` if it is not strict JSON of at most 256 KiB."""
    whole = Value(None, key, error)
    try:
        if len(text.encode()) > MAX_BYTES:
            whole.fail(f"longer than {MAX_BYTES} bytes")
        raw = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
        if "\\u" in text:
            # Valid text can contain a lone surrogate only as an escape.
            json.dumps(raw, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        whole.fail("contains a character that is not valid Unicode (a lone surrogate)")
    except RecursionError:
        whole.fail("nested too deeply")
    except ContractError:
        raise
    except ValueError as fault:
        whole.fail(f"not valid JSON: {fault}")
    return Value(raw, key, error)


def decode(text: str | bytes) -> Any:
    """Return the value of another program's JSON; raise ValueError if it is invalid or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def dump(document: object) -> str:
    """Return compact JSON with sorted keys; equal values give equal strings."""
    return _encode(document)


def shorten(raw: object) -> str:
    """Return a value for an error text, shortened so that a hostile document cannot flood a log or an event."""
    if isinstance(raw, dict | list):
        return f"{'an object' if isinstance(raw, dict) else 'a list'} of {len(raw)}"
    if raw is None or isinstance(raw, bool):
        # In JSON's notation, as the author of the document wrote it.
        return json.dumps(raw)
    if isinstance(raw, int) and raw.bit_length() > 128:
        return f"an integer of {raw.bit_length()} bits"
    text = repr(raw)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError(f"field {shorten(_first_duplicate(pairs))} appears twice in one object")
    return fields


def _first_duplicate(pairs: Iterable[tuple[str, object]]) -> str | None:
    previous_names: set[str] = set()
    for name, _ in pairs:
        if name in previous_names:
            return name
        previous_names.add(name)
    return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
