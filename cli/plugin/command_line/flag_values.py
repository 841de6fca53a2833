"""The values of flags and arguments: each function reads one text, and raises ArgumentTypeError with the rule."""

import math
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mooring import names
from mooring.annotations.drain import LONGEST_REASON

FORMATS = ("table", "wide", "name", "json", "yaml", "jsonpath")
REPORT_FORMATS = ("html", "json", "yaml", "jsonpath")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
# The names of a kind as kubectl takes them: singular, plural and short.
_KINDS = {
    "node": ("node", "nodes", "no"),
    "pod": ("pod", "pods", "po"),
    "group": ("group", "groups"),
    "job": ("job", "jobs"),
}


class Subject(NamedTuple):
    """What `explain` is about: ``kind`` is pod, group or job."""

    kind: str
    name: str


def text_list(text: str) -> tuple[str, ...]:
    """Read a list with commas."""
    return tuple(dict.fromkeys(filter(None, text.split(","))))


def name_list(text: str) -> tuple[str, ...]:
    """Read names of objects with commas between them."""
    return tuple(name(word) for word in text_list(text))


def name(text: str) -> str:
    """Read the name of an object, which becomes a part of a path."""
    if not names.is_subdomain(text):
        raise ArgumentTypeError(f"name {text!r}: must be at most 253 of a-z 0-9 . -")
    return text


def name_or_empty(text: str) -> str:
    """Read a name that may be empty: an empty namespace is the context's own, as for kubectl."""
    return name(text) if text else ""


def name_of(*kinds: str) -> Callable[[str], str]:
    """Return what reads NAME or KIND/NAME, where KIND is one of these."""

    def read(text: str) -> str:
        prefix, separator, rest = text.rpartition("/")
        if separator and not any(prefix in _KINDS[kind] for kind in kinds):
            raise ArgumentTypeError(f"argument {text!r}: must be NAME or {' or '.join(kinds)}/NAME")
        return name(rest)

    return read


def subject(text: str) -> Subject:
    """Read what is explained: a pod's name, or pod/NAME, group/NAME or job/NAME."""
    prefix, separator, rest = text.rpartition("/")
    kind = next((one for one, spellings in _KINDS.items() if prefix in spellings), "") if separator else "pod"
    if kind not in ("pod", "group", "job"):
        raise ArgumentTypeError(f"argument {text!r}: must be NAME, pod/NAME, group/NAME or job/NAME")
    return Subject(kind, name(rest))


def seconds(text: str) -> float:
    """Read a time above 0, in seconds or with kubectl's units s, m and h."""
    number, unit = (text[:-1], _UNITS[text[-1]]) if text[-1:] in _UNITS else (text, 1.0)
    try:
        value = float(number) * unit
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"time {text!r}: must be above 0, such as 30, 30s or 1m")
    return value


def count(text: str) -> int:
    """Read a number from 0 up."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"number {text!r}: must be 0 or more")
    return int(text)


def positive(text: str) -> int:
    """Read a number from 1 up."""
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"number {text!r}: must be 1 or more")
    return int(text)


def reason(text: str) -> str:
    """Read a reason, which people read in a table's cell."""
    if len(text) > LONGEST_REASON or not text.isprintable():
        raise ArgumentTypeError(f"a reason is one line of at most {LONGEST_REASON} characters")
    return text


def output(text: str) -> tuple[str, str]:
    """Read an output format and, of jsonpath, its template."""
    return _output(text, FORMATS)


def report_output(text: str) -> tuple[str, str]:
    """Read an output format of `report`, as `output` does."""
    return _output(text, REPORT_FORMATS)


def port(text: str) -> int:
    """Read a TCP port; 0 takes a free one."""
    if not text.isdecimal() or int(text) > 65535:
        raise ArgumentTypeError(f"port {text!r}: must be 0 to 65535")
    return int(text)


def _output(text: str, formats: Sequence[str]) -> tuple[str, str]:
    kind, separator, template = text.partition("=")
    if kind not in formats or bool(separator) != (kind == "jsonpath"):
        allowed = ",".join(form if form != "jsonpath" else "jsonpath=TEMPLATE" for form in formats)
        raise ArgumentTypeError(f"output format {text!r}: allowed formats are: {allowed}")
    return kind, template
