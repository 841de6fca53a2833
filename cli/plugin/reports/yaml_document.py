"""Documents of JSON's types as YAML. Pure.

PyYAML's C dumper takes a second for 5,000 pods with two VFs each, half of it to make a node of each scalar. So texts of
printable ASCII are written here, and PyYAML writes the others.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import yaml

# A plain scalar that YAML 1.1 and 1.2 both read as text, unless it is one of `_WORDS`.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*").fullmatch
# A text without anything to escape in double quotes.
_QUOTABLE = re.compile(r"[ !#-\[\]-~]*").fullmatch
# What YAML 1.1 reads as true, false or null (yaml.org/type/bool.html, null.html).
_WORDS = frozenset({"y", "n", "yes", "no", "true", "false", "on", "off", "null"})
_FOLD_NEVER = 1 << 30


def dump(document: Mapping[str, object]) -> str:
    """Return a document as block style YAML in its own order; its values are dicts, lists and JSON's scalars.

    Indented as kubectl does: a list's dashes are below the name of its field.
    """
    return "\n".join(_fields(document, "")) + "\n" if document else "{}\n"


def _fields(fields: Mapping[str, object], indent: str) -> Iterator[str]:
    for name, value in fields.items():
        start = f"{indent}{_scalar(name)}:"
        if isinstance(value, dict) and value:
            yield start
            yield from _fields(value, f"{indent}  ")
        elif isinstance(value, list) and value:
            yield start
            yield from _entries(value, indent)
        else:
            yield f"{start} {_leaf(value)}"


def _entries(entries: Sequence[object], indent: str) -> Iterator[str]:
    """Yield a list's lines: the first one of each entry has the dash in the place of its indent's last two spaces."""
    for value in entries:
        if isinstance(value, dict) and value:
            lines = _fields(value, f"{indent}  ")
        elif isinstance(value, list) and value:
            lines = _entries(value, f"{indent}  ")
        else:
            lines = iter((f"{indent}  {_leaf(value)}",))
        yield f"{indent}- {next(lines)[len(indent) + 2 :]}"
        yield from lines


def _leaf(value: object) -> str:
    if isinstance(value, str):
        return _scalar(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return _by_library(value)


@lru_cache(maxsize=4096)
def _scalar(text: str) -> str:
    if _PLAIN(text) and text.lower() not in _WORDS:
        return text
    return f'"{text}"' if _QUOTABLE(text) else _by_library(text)


def _by_library(value: object) -> str:
    """Return what PyYAML makes of an empty collection, a float, or a text that needs quotes; in one line."""
    if isinstance(value, str):
        return yaml.dump(value, Dumper=yaml.SafeDumper, default_style='"', width=_FOLD_NEVER).rstrip("\n")
    return yaml.dump(value, Dumper=yaml.SafeDumper, default_flow_style=True, width=_FOLD_NEVER).splitlines()[0]
