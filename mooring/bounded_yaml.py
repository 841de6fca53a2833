"""Read YAML from anyone within bounds; every fault is a `YamlError`. Pure.

A few hundred bytes of YAML can stand for gigabytes, because an alias repeats what its anchor has and `<<` copies it. So
a document's events are counted first, with every alias as large as its anchor, and only a document within the bounds is
built. PyYAML's constructors raise errors of many classes for a value that does not match its tag.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import yaml
from yaml.reader import Reader

# libyaml's parser, if PyYAML has it, is several times as fast.
_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
NUMBERS, TEXT = frozenset({_INTEGER, _FLOAT}), "tag:yaml.org,2002:str"
# Characters of a number, and of a tag, whose prefix a directive can make long.
_LONGEST_NUMBER, _LONGEST_TAG = 128, 128
_EXCERPT_LENGTH = 80
# What PyYAML raises for a value that does not match its tag, such as `!!int ""`.
_MISMATCHES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class YamlError(ValueError):
    """A text is not YAML or exceeds a bound: where (counted from 1, None if unknown), and the rule with the value."""

    def __init__(self, rule: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(rule, line, column)
        self.rule = rule
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return self.rule if self.line is None else f"line {self.line}, column {self.column}: {self.rule}"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a text's ``characters`` and ``values``, of the ``depth`` of a value, and of the length of a ``scalar``.

    Aliases count as what they repeat.
    """

    characters: int = 4 << 20
    values: int = 100_000
    depth: int = 64
    scalar: int = 1 << 20


DEFAULT = Bounds()


class _Loader(_BASE):  # type: ignore[misc]
    """PyYAML's safe loader; a value that does not match its tag is a `YamlError`."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (YamlError, yaml.YAMLError):
            raise
        except _MISMATCHES as error:
            tag = node.tag.removeprefix("tag:yaml.org,2002:")
            excerpt = f"{node.value[:_EXCERPT_LENGTH]!r} " if isinstance(node.value, str) else ""
            raise _at(node.start_mark, f"{excerpt}does not match the tag {tag!r}: {error}") from error


def _construct_integer(loader: Any, node: Any) -> int | float:
    """Return an integer; one of more than 64 bits becomes a float, as in go-yaml (resolve.go).

    Python's hash of large integers is predictable, so many keys could share one.
    """
    _check_number(node)
    value: int = loader.construct_yaml_int(node)
    return value if abs(value) < 1 << 64 else float(value)


def _construct_float(loader: Any, node: Any) -> float:
    _check_number(node)
    value: float = loader.construct_yaml_float(node)
    return value


def _check_number(node: Any) -> None:
    """Check the length: PyYAML needs quadratic time for numbers in base 60."""
    if len(node.value) > _LONGEST_NUMBER:
        rule = f"a number of {len(node.value)} characters exceeds the limit of {_LONGEST_NUMBER}"
        raise _at(node.start_mark, f"{node.value[:_EXCERPT_LENGTH]!r}…: {rule}")


_Loader.add_constructor(_INTEGER, _construct_integer)
_Loader.add_constructor(_FLOAT, _construct_float)


@dataclass(frozen=True, slots=True)
class Document:
    """One document within the bounds: its root ``node``, and the ``loader`` that builds values from nodes."""

    node: Any
    loader: Any

    def value(self) -> Any:
        """Return the document as Python's values; raise YamlError."""
        with as_yaml_error():
            return self.loader.construct_document(self.node)


def documents(text: str, bounds: Bounds = DEFAULT) -> Iterator[Document]:
    """Yield a text's documents one by one; raise YamlError at the first fault."""
    if len(text) > bounds.characters:
        raise YamlError(f"{len(text)} characters exceed the limit of {bounds.characters}")
    if unprintable := Reader.NON_PRINTABLE.search(text):
        preceding_text = text[: unprintable.start()]
        rule = f"character {ord(unprintable[0]):#x} is not allowed"
        raise YamlError(rule, preceding_text.count("\n") + 1, len(preceding_text) - preceding_text.rfind("\n"))
    events, loader, counter = yaml.parse(text, Loader=_BASE), _Loader(text), _Counter(bounds)
    try:
        while True:
            with as_yaml_error():
                # check_node also takes the start of the stream in, which get_node expects.
                if not (_count_document(events, counter) and loader.check_node()):
                    return
                document = Document(loader.get_node(), loader)
            yield document
    finally:
        loader.dispose()


def load_documents(text: str, bounds: Bounds = DEFAULT) -> list[Any]:
    """Return the values of a text's documents; raise YamlError."""
    return [document.value() for document in documents(text, bounds)]


def only_document(text: str, bounds: Bounds = DEFAULT) -> Document | None:
    """Return a text's only document, None without one; raise YamlError."""
    first_two = list(islice(documents(text, bounds), 2))
    if len(first_two) > 1:
        raise _at(first_two[1].node.start_mark, "a second document begins here, but only one is allowed")
    return first_two[0] if first_two else None


def load(text: str, bounds: Bounds = DEFAULT) -> Any:
    """Return the value of a text's only document, None without one; raise YamlError."""
    document = only_document(text, bounds)
    return None if document is None else document.value()


def to_json(text: str) -> str:
    """Return a document in JSON or YAML as JSON; raise YamlError. JSON is unchanged, so that duplicate fields stay."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return encode_json(load(text))
    return text


def encode_json(value: Any) -> str:
    """Return a value from YAML as JSON; raise YamlError for keys that JSON does not have.

    YAML has dates and bytes: they become text, which the rules of a document then reject.
    """
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError) as wrong:
        raise YamlError(str(wrong)) from wrong


@dataclass(frozen=True, slots=True)
class _Anchor:
    """What an alias adds to its document: values, characters of scalars, and levels."""

    values: int
    characters: int
    levels: int


@dataclass(slots=True)
class _Collection:
    """A collection that is open: its anchor, the counts before it, and the most levels of its items."""

    anchor: str | None
    values: int
    characters: int
    levels: int = 0


@dataclass(slots=True)
class _Counter:
    """Counts a text's values as if its aliases were written out."""

    bounds: Bounds
    values: int = 0
    characters: int = 0
    open: list[_Collection] = field(default_factory=list)
    anchors: dict[str, _Anchor] = field(default_factory=dict)

    def count(self, event: Any) -> None:
        """Count an event; raise YamlError if it exceeds a bound."""
        if isinstance(event, yaml.ScalarEvent):
            self._count_scalar(event)
        elif isinstance(event, yaml.AliasEvent):
            self._count_alias(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            _check_tag(event)
            self.open.append(_Collection(event.anchor, self.values, self.characters))
            self._add(event, _Anchor(1, 0, 0))
        else:
            collection = self.open.pop()
            size = _Anchor(
                self.values - collection.values, self.characters - collection.characters, collection.levels + 1
            )
            self._name(collection.anchor, size)
            if self.open:
                self.open[-1].levels = max(self.open[-1].levels, size.levels)

    def _count_scalar(self, event: Any) -> None:
        _check_tag(event)
        length = len(event.value)
        if length > self.bounds.scalar:
            raise _at(event.start_mark, f"a scalar of {length} characters exceeds the limit of {self.bounds.scalar}")
        size = _Anchor(1, length, 0)
        self._add(event, size)
        self._name(event.anchor, size)

    def _count_alias(self, event: Any) -> None:
        if any(collection.anchor == event.anchor for collection in self.open):
            raise _at(event.start_mark, f"alias {event.anchor!r} contains itself")
        # PyYAML's composer reports an alias without an anchor.
        self._add(event, self.anchors.get(event.anchor, _Anchor(1, 0, 0)))

    def _add(self, event: Any, size: _Anchor) -> None:
        """Add an item to the innermost open collection."""
        self.values += size.values
        self.characters += size.characters
        if self.open:
            self.open[-1].levels = max(self.open[-1].levels, size.levels)
        if len(self.open) + size.levels > self.bounds.depth:
            raise _at(event.start_mark, f"nested deeper than {self.bounds.depth} levels")
        if self.values > self.bounds.values:
            raise _at(event.start_mark, f"more than {self.bounds.values} values")
        if self.characters > self.bounds.characters:
            raise _at(event.start_mark, f"more than {self.bounds.characters} characters")

    def _name(self, anchor: str | None, size: _Anchor) -> None:
        if anchor is not None:
            self.anchors[anchor] = size


def _check_tag(event: Any) -> None:
    if len(event.tag or "") > _LONGEST_TAG:
        raise _at(
            event.start_mark, f"tag {event.tag[:_EXCERPT_LENGTH]!r}… exceeds the limit of {_LONGEST_TAG} characters"
        )


def _count_document(events: Iterator[Any], counter: _Counter) -> bool:
    """Count the next document, and return whether there is one; raise YamlError if it exceeds a bound."""
    counter.anchors.clear()
    for event in events:
        if isinstance(event, yaml.DocumentEndEvent):
            return True
        if isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
            counter.count(event)
    return False


def _at(mark: Any, rule: str) -> YamlError:
    return YamlError(rule, mark.line + 1, mark.column + 1)


@contextmanager
def as_yaml_error() -> Iterator[None]:
    """Make each error of PyYAML a `YamlError`."""
    try:
        yield
    except yaml.MarkedYAMLError as wrong:
        if wrong.problem_mark is None:
            raise YamlError(str(wrong.problem)) from wrong
        raise _at(wrong.problem_mark, str(wrong.problem)) from wrong
    except (yaml.YAMLError, RecursionError) as wrong:
        raise YamlError(" ".join(str(wrong).split())) from wrong
