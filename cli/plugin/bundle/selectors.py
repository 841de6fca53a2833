"""Select objects by fields and labels, as an API server does for the parameters of a list. Pure.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#api
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cli.plugin.bundle.layout import BundleError

Test = Callable[[Mapping[str, Any]], bool]
_TERM = re.compile(r"\s*([^\s!=(),]+)\s*(==|=|!=)\s*([^\s!=(),]*)\s*")
_SET = re.compile(r"\s*([^\s!=(),]+)\s+(in|notin)\s*\(([^()]*)\)\s*")
_EXISTS = re.compile(r"\s*(!?)\s*([^\s!=(),]+)\s*")
_COMMA = re.compile(r",(?![^()]*\))")


def field_selector(text: str) -> Test:
    """Return the test of a fieldSelector; a field that is absent is empty, as for the API server."""
    terms = [_term(part, "fieldSelector") for part in text.split(",") if part]

    def test(item: Mapping[str, Any]) -> bool:
        return all((_field(item, key) == value) == (operator != "!=") for key, operator, value in terms)

    return test


def label_selector(text: str) -> Test:
    """Return the test of a labelSelector for an object's labels."""
    tests = [_label_test(part) for part in _COMMA.split(text) if part.strip()]
    return lambda labels: all(test(labels) for test in tests)


def _label_test(part: str) -> Test:
    if found := _SET.fullmatch(part):
        key, is_in, values = found[1], found[2] == "in", {one.strip() for one in found[3].split(",")}
        return lambda labels: (labels.get(key) in values) == is_in
    if found := _EXISTS.fullmatch(part):
        key, is_absent = found[2], found[1] == "!"
        return lambda labels: (key in labels) != is_absent
    key, operator, value = _term(part, "labelSelector")
    return lambda labels: (labels.get(key) == value) == (operator != "!=")


def _term(part: str, parameter: str) -> Sequence[str]:
    if (found := _TERM.fullmatch(part)) is None:
        raise BundleError(f"{parameter}: {part!r} is not a selector such as 'key=value'")
    return found.groups()


def _field(item: Mapping[str, Any], path: str) -> str:
    value: Any = item
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)
