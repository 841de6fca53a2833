r"""Evaluate kubectl's JSONPath templates on JSON values. Pure.

A template is text with actions in braces: ``{.items[*].name}``, ``{"\n"}``, ``{range .items[*]}…{end}``. This is the
language of client-go's `util/jsonpath` (https://kubernetes.io/docs/reference/kubectl/jsonpath/), and the same errors,
but for numbers and identifiers that stand alone in an action. A missing field is no value and no error, as in
`kubectl get`.
"""

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.plugin.reports.tables import printable

_TOKEN = re.compile(r"\.\.|\[\?\(|\[|\.|[@$]|\s+|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|[A-Za-z_]\w*")
_NAME = re.compile(r"(?:\\.|[^\\\s.,\[\]$@{}])*")
_FILTER = re.compile(r"([^!<>=]+)([!<>=]+)(.+)", re.DOTALL)
_SLICE = re.compile(r"(-?\d*)(:-?\d*)?(:\d*)?")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_Step = Callable[[Sequence[object]], list[object]]


class JsonPathError(ValueError):
    """A template that cannot be read, or evaluated on these values: the message for a person."""


@dataclass(frozen=True, slots=True)
class _Text:
    text: str


@dataclass(frozen=True, slots=True)
class _Values:
    """The values that the steps lead to; ``begins`` a loop over them."""

    steps: tuple[_Step, ...]
    begins: bool = False


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a loop."""


_Action = _Text | _Values | _End


class Template:
    """A template that has been read; raise JsonPathError for a wrong one."""

    def __init__(self, text: str) -> None:
        try:
            self._actions = list(_actions(text))
            self._check()
        except JsonPathError as wrong:
            raise JsonPathError(f"error parsing jsonpath {text}, {wrong}") from None

    def _check(self) -> None:
        depth = 0
        for action in self._actions:
            depth += isinstance(action, _Values) and action.begins
            depth -= isinstance(action, _End)
            if depth < 0:
                raise JsonPathError("not in range, nothing to end")
        if depth:
            raise JsonPathError("range without end")

    def render(self, document: object) -> str:
        """Return the text for a document; raise JsonPathError where a step does not fit a value."""
        return "".join(_render(self._actions, document))


class Path:
    """One path, with or without its braces, such as ``.metadata.name``."""

    def __init__(self, text: str) -> None:
        try:
            self._steps = tuple(_steps(text.strip().removeprefix("{").removesuffix("}")))
        except JsonPathError as wrong:
            raise JsonPathError(f"error parsing jsonpath {text}, {wrong}") from None

    def values(self, document: object) -> list[object]:
        """Return the values that the path leads to."""
        return _follow(self._steps, document)


def _render(actions: Sequence[_Action], document: object) -> Iterator[str]:
    at = 0
    while at < len(actions):
        action = actions[at]
        at += 1
        match action:
            case _Text(text):
                yield text
            case _Values(steps, begins=False):
                yield " ".join(map(_text, _follow(steps, document)))
            case _Values(steps):
                end = _end_of(actions, at)
                for value in _follow(steps, document):
                    yield from _render(actions[at:end], value)
                at = end + 1


def _end_of(actions: Sequence[_Action], at: int) -> int:
    """Return the index of the end of a loop, given that of its body."""
    depth = 1
    while True:
        action = actions[at]
        depth += isinstance(action, _Values) and action.begins
        depth -= isinstance(action, _End)
        if not depth:
            return at
        at += 1


def _follow(steps: Sequence[_Step], document: object) -> list[object]:
    values = [document]
    for step in steps:
        values = step(values)
    return values


def _text(value: object) -> str:
    if isinstance(value, str):
        return "\n".join(map(printable, value.split("\n")))
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _actions(text: str) -> Iterator[_Action]:
    """Yield the parts of a template."""
    at = 0
    while at < len(text):
        begin = text.find("{", at)
        if begin < 0:
            begin = len(text)
        if begin > at:
            yield _Text(text[at:begin])
        if begin == len(text):
            return
        end = _closing(text, begin + 1)
        yield from _action(text[begin + 1 : end].strip())
        at = end + 1


def _closing(text: str, at: int) -> int:
    """Return where the action that begins here is closed: braces in quotes do not count."""
    quote = ""
    while at < len(text):
        if quote and text[at] == "\\":
            at += 1
        elif text[at] in (quote or "\"'"):
            quote = "" if quote else text[at]
        elif text[at] == "}" and not quote:
            return at
        at += 1
    raise JsonPathError("unterminated quoted string" if quote else "unclosed action")


def _action(text: str) -> Iterator[_Action]:
    if text == "end":
        yield _End()
    elif text == "range" or text.startswith("range "):
        yield _Values(tuple(_steps(text.removeprefix("range"))), begins=True)
    elif text[:1] in ("'", '"'):
        for token in _strings(text):
            yield _Text(_unquoted(token))
    elif text:
        yield _Values(tuple(_steps(text)))


def _strings(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match[0][0] not in "\"' \t":
            raise JsonPathError(f"a quoted string is followed by {text[at:]!r}")
        if match[0].strip():
            yield match[0]
        at = match.end()


def _unquoted(token: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), token[1:-1])


def _steps(text: str) -> Iterator[_Step]:
    """Yield the steps of a path."""
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise JsonPathError(f"unrecognized character in action: {text[at]!r}")
        at = token.end()
        match token[0]:
            case "." | "..":
                if token[0] == "..":
                    yield _descend
                name = _NAME.match(text, at)
                assert name is not None, "an empty name matches"
                at = name.end()
                if name[0] or token[0] == ".":
                    yield _wildcard if name[0] == "*" else _field(re.sub(r"\\(.)", r"\1", name[0]))
            case "[?(":
                end = _end_of_filter(text, at)
                yield _filter(text[at:end])
                at = end + len(")]")
            case "[":
                end = _end_of_brackets(text, at)
                yield _brackets(text[at:end].strip())
                at = end + 1
            case word if word.isidentifier():
                raise JsonPathError(f"unrecognized identifier {word}")
            case word if word[0] in "\"'":
                raise JsonPathError(f"a path has the quoted string {word}")


def _end_of_brackets(text: str, at: int) -> int:
    match = re.compile(r"(?:'[^']*'|\"[^\"]*\"|[^\]'\"])*(?=\])").match(text, at)
    if match is None:
        raise JsonPathError("unterminated array")
    return match.end()


def _end_of_filter(text: str, at: int) -> int:
    match = re.compile(r"(?:'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[^)'\"])*(?=\)\])").match(text, at)
    if match is None:
        raise JsonPathError("unterminated filter")
    return match.end()


def _field(name: str) -> _Step:
    return lambda values: [value[name] for value in values if isinstance(value, dict) and name in value]


def _wildcard(values: Sequence[object]) -> list[object]:
    return [child for value in values for child in _children(value)]


def _children(value: object) -> Sequence[object]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()


def _descend(values: Sequence[object]) -> list[object]:
    """Return the values and all below them that have children."""
    found: list[object] = []
    for value in values:
        if children := _children(value):
            found += [value, *_descend(children)]
    return found


def _brackets(text: str) -> _Step:
    parts = re.findall(r"(?:'[^']*'|\"[^\"]*\"|[^,'\"])+", text)
    if len(parts) > 1:
        several = [_brackets(part.strip()) for part in parts]
        return lambda values: [found for step in several for found in step(values)]
    if text[:1] in ("'", '"'):
        return _field(text[1:-1])
    if text == "*":
        return _wildcard
    match = _SLICE.fullmatch(text)
    if match is None or not text:
        raise JsonPathError(f"invalid array index {text}")
    return _index(int(text)) if match[2] is None else _slice(match)


def _index(wanted: int) -> _Step:
    def step(values: Sequence[object]) -> list[object]:
        found = []
        for value in _arrays(values):
            at = wanted + len(value) if wanted < 0 else wanted
            if not 0 <= at < len(value):
                raise JsonPathError(f"array index out of bounds: index {at}, length {len(value)}")
            found.append(value[at])
        return found

    return step


def _slice(match: re.Match[str]) -> _Step:
    first, last, stride = (int(text) if (text := (part or "").lstrip(":")) else None for part in match.groups())
    if stride == 0:
        raise JsonPathError("the step of a slice is 0")
    return lambda values: [child for value in _arrays(values) for child in value[first:last:stride]]


def _arrays(values: Sequence[object]) -> Iterator[list[object]]:
    for value in values:
        if isinstance(value, list):
            yield value
        elif value is not None:
            raise JsonPathError(f"{_text(value)} is not array or slice")


def _filter(text: str) -> _Step:
    compared = _FILTER.fullmatch(text)
    if compared is None:
        exists = tuple(_steps(text))
        return lambda values: [one for value in _arrays(values) for one in value if _follow(exists, one)]
    if re.search(r"&&|\|\||=~", text):
        raise JsonPathError(f"filter {text}: must be one comparison; kubectl knows no &&, || and =~")
    if compared[2] not in _OPERATORS:
        raise JsonPathError(f"unrecognized filter operator {compared[2]}")
    left, holds, right = _operand(compared[1]), _OPERATORS[compared[2]], _operand(compared[3])

    def is_match(one: object) -> bool:
        lefts, rights = _follow(left, one), _follow(right, one)
        if not lefts or not rights:
            return False
        if len(lefts) > 1 or len(rights) > 1:
            raise JsonPathError("can only compare one element at a time")
        try:
            return holds(lefts[0], rights[0])
        except TypeError:
            raise JsonPathError(f"incompatible types for comparison: {_text(lefts[0])}, {_text(rights[0])}") from None

    return lambda values: [one for value in _arrays(values) for one in value if is_match(one)]


def _operand(text: str) -> tuple[_Step, ...]:
    """Return the steps to one side of a comparison; a constant is reached from any value."""
    text = text.strip()
    if text[:1] in ("'", '"') and text[-1:] == text[0]:
        constant: object = _unquoted(text)
    elif text in ("true", "false") or re.fullmatch(r"[+-]?\d+(\.\d+)?", text):
        constant = json.loads(text.lstrip("+"))
    else:
        return tuple(_steps(text))
    return (lambda _: [constant],)
