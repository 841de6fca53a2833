"""Edit one key of a kubelet's configuration file, YAML or JSON, and change no other byte.

PyYAML's parser gives the position of the key and its value, so comments, order and form stay. Like the kubelet, only
the first document of a file is read. JSON is parsed as YAML. go-yaml accepts a tab between two words as a space, PyYAML
does not, so tabs are replaced by spaces before parsing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from cli.node.errors import NodeError
from cli.node.plan.states import Edit, added, edited
from mooring.bounded_yaml import YamlError, load_documents

NAME = "containerRuntimeEndpoint"
_AFTER_A_WORD = re.compile(r"(?<=\S)[ \t]+")
# An anchor or a tag before a value.
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One key of a document: the positions of key and value in the text, and the value's quotes."""

    name: str
    begin: int
    end: int
    value: int
    value_end: int
    quote: str


@dataclass(frozen=True, slots=True)
class _Document:
    """The first document of a file; ``begin`` is the position of its ``{``, None if it is not in flow style."""

    entries: tuple[_Entry, ...] = ()
    begin: int | None = None
    end: int = 0


def endpoint_in(path: str, text: str) -> str | None:
    """Return the endpoint of a configuration, None without the key; raise NodeError."""
    document = _mapping(path, _documents(path, text))
    value = document.get(NAME, "" if NAME in document else None)
    if value is not None and not isinstance(value, str):
        raise NodeError(f"kubelet configuration {path!r}: {NAME} is {value!r}, which is not a string")
    return value


def set_endpoint(path: str, text: str, socket: str) -> Edit | None:
    """Return the edit that sets the endpoint, None if the configuration already has it; raise NodeError."""
    before = _documents(path, text)
    if _mapping(path, before).get(NAME) == socket:
        return None
    try:
        found = _first_document(text)
    except yaml.YAMLError as wrong:
        # PyYAML's parser in Python is in places stricter than libyaml.
        raise NodeError(f"kubelet configuration {path!r} cannot be read: {wrong}") from wrong
    if (times := sum(entry.name == NAME for entry in found.entries)) > 1:
        raise NodeError(f"kubelet configuration {path!r} has {NAME} {times} times: keep one of them")
    for edit in _edits(path, text, found, socket):
        if _is_right(before, edited(edit, text), socket):
            return edit
    raise NodeError(f"kubelet configuration {path!r} cannot be edited automatically: set {NAME} to {socket!r} in it")


def _documents(path: str, text: str) -> list[Any]:
    try:
        return load_documents(_without_tabs(text))
    except YamlError as wrong:
        raise NodeError(f"kubelet configuration {path!r} cannot be read: {wrong}") from wrong


def _without_tabs(text: str) -> str:
    if text.lstrip().startswith("{"):
        # Strings of JSON cannot contain tabs.
        return text.replace("\t", " ")
    return _AFTER_A_WORD.sub(lambda match: " " * len(match[0]), text)


def _mapping(path: str, documents: Sequence[Any]) -> Mapping[str, Any]:
    document = documents[0] if documents else None
    if document is not None and not isinstance(document, dict):
        raise NodeError(f"kubelet configuration {path!r} is not a mapping")
    return document or {}


def _first_document(text: str) -> _Document:
    events = iter(yaml.parse(_without_tabs(text), Loader=yaml.SafeLoader))
    root = next((event for event in events if isinstance(event, yaml.NodeEvent)), None)
    if not isinstance(root, yaml.MappingStartEvent):
        return _Document()
    entries: list[_Entry] = []
    for key in events:
        if isinstance(key, yaml.MappingEndEvent):
            begin = text.index("{", _at(root.start_mark)) if root.flow_style else None
            return _Document(tuple(entries), begin, _at(key.end_mark))
        _last_of(key, events)
        value = next(events)
        last = _last_of(value, events)
        if isinstance(key, yaml.ScalarEvent):
            entries.append(_entry(key, value, last))
    raise AssertionError("a mapping ends")


def _entry(key: yaml.ScalarEvent, value: yaml.Event, last: yaml.Event) -> _Entry:
    style = value.style if isinstance(value, yaml.ScalarEvent) else None
    return _Entry(
        name=key.value,
        begin=_at(key.start_mark),
        end=_at(key.end_mark),
        value=_at(value.start_mark),
        value_end=_at(last.end_mark),
        quote=style if style in ("'", '"') else "",
    )


def _at(mark: Any) -> int:
    return int(mark.index)


def _last_of(event: yaml.Event, events: Iterator[yaml.Event]) -> yaml.Event:
    """Return the event that ends a node."""
    depth = 0
    while True:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth == 0:
            return event
        event = next(events)


def _edits(path: str, text: str, found: _Document, socket: str) -> Iterator[Edit]:
    """Yield candidate edits, the best first."""
    line = f"{NAME}: {socket}" + ("\r\n" if "\r\n" in text else "\n")
    if (entry := next((entry for entry in found.entries if entry.name == NAME), None)) is not None:
        yield _replacement(path, text, found, entry, socket)
    elif found.begin is not None:
        yield _insertion_in_flow(path, text, found, socket)
    else:
        yield added(path, text, line)
        yield from _insertions_before(path, text, found.entries[:1], line)


def _replacement(path: str, text: str, found: _Document, entry: _Entry, socket: str) -> Edit:
    """Replace the value together with the beginning of its line, so that the edit cannot match a comment."""
    match = _PROPERTIES.match(text, entry.value, entry.value_end)
    value = match.end() if match else entry.value
    quote = entry.quote or ('"' if found.begin is not None else "")
    begin = text.rfind("\n", 0, entry.begin) + 1
    begin = max(begin - 1, 0) if not text[begin : entry.begin].strip() else entry.begin
    space = "" if text[:value].endswith((" ", "\t", "\n", '":')) else " "
    old = text[begin:value] + text[value : entry.value_end].rstrip()
    return Edit(path, old, f"{text[begin:value]}{space}{quote}{socket}{quote}")


def _insertion_in_flow(path: str, text: str, found: _Document, socket: str) -> Edit:
    assert found.begin is not None, "it is in flow style"
    own = f'"{NAME}": "{socket}"'
    if not found.entries:
        return Edit(path, text[found.begin : found.end], f"{{{own}}}")
    first = found.entries[0]
    gap = text[found.begin + 1 : first.begin]
    return Edit(path, text[found.begin : first.end], f"{{{gap}{own},{gap or ' '}{text[first.begin : first.end]}")


def _insertions_before(path: str, text: str, first: Sequence[_Entry], line: str) -> Iterator[Edit]:
    """Insert a line before the first key, for files with text after their first document."""
    for entry in first:
        indent = text[text.rfind("\n", 0, entry.begin) + 1 : entry.begin]
        for end in (entry.value_end, len(text)):
            yield Edit(path, text[entry.begin : end], f"{line}{indent}{text[entry.begin : end]}")


def _is_right(before: Sequence[Any], text: str, socket: str) -> bool:
    """Return whether an edited text has the endpoint once, and differs only there and in YAML aliases of the value."""
    try:
        after = _documents("", text)
        entries = _first_document(text).entries
    except NodeError:
        return False
    was, now = (documents[0] or {} if documents else {} for documents in (before, after))
    changed = {key for key in was.keys() | now.keys() if was.get(key) != now.get(key)}
    aliases = all(was.get(key) == was.get(NAME) and now.get(key) == socket for key in changed - {NAME})
    once = sum(entry.name == NAME for entry in entries) == 1
    return aliases and once and now.get(NAME) == socket and after[1:] == list(before[1:])
