"""Field and label selectors: read once, matched against every object and every change.

Grammar: k8s.io/apimachinery labels.Parse and fields.ParseSelector.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from devcluster.apiserver.status import bad_request


@dataclass(frozen=True, slots=True)
class LabelTerm:
    """`key`, an operator (in, notin, exists, absent, gt, lt) and its values."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Apply the term; a missing key satisfies notin and absent only."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
            case _:
                return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        (bound,) = self.values
        try:
            return int(value) > int(bound) if self.operator == "gt" else int(value) < int(bound)
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """`path=value`, or with `equal` false `path!=value`."""

    path: str
    value: str
    equal: bool

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Apply the term; an absent field is the empty string."""
        return (fields.get(self.path, "") == self.value) == self.equal


@dataclass(frozen=True, slots=True)
class Selector:
    """What a list or a watch selects. Empty: everything."""

    namespace: str | None = None
    labels: tuple[LabelTerm, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    @property
    def everything(self) -> bool:
        """Return whether nothing is excluded except by namespace."""
        return not self.labels and not self.fields

    def exact(self, path: str) -> str | None:
        """Return the value that `path` must have, None if any."""
        return next((term.value for term in self.fields if term.path == path and term.equal), None)

    def matches(self, namespace: str, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        """Return whether an object is selected."""
        if self.namespace is not None and self.namespace != namespace:
            return False
        return all(term.matches(fields) for term in self.fields) and all(term.matches(labels) for term in self.labels)


_SET_TERM = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)$")
_PAIR_TERM = re.compile(r"^(?P<key>[^=!<>\s]+)\s*(?P<operator>==|=|!=|>|<)\s*(?P<value>\S*)$")
_BARE_TERM = re.compile(r"^(?P<negated>!?)\s*(?P<key>[A-Za-z0-9][A-Za-z0-9._/-]*)$")
_PAIR_OPERATORS = {"=": "in", "==": "in", "!=": "notin", ">": "gt", "<": "lt"}
_OUTSIDE_BRACKETS = re.compile(r",(?![^()]*\))")


def parse_labels(text: str) -> tuple[LabelTerm, ...]:
    """Read a label selector; raise 400 if it breaks the grammar."""
    terms = (term.strip() for term in _OUTSIDE_BRACKETS.split(text))
    return tuple(_label_term(term) for term in terms if term)


def _label_term(term: str) -> LabelTerm:
    if found := _SET_TERM.match(term):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return LabelTerm(found["key"], found["operator"], values)
    if found := _PAIR_TERM.match(term):
        return LabelTerm(found["key"], _PAIR_OPERATORS[found["operator"]], frozenset({found["value"]}))
    if found := _BARE_TERM.match(term):
        return LabelTerm(found["key"], "absent" if found["negated"] else "exists")
    raise bad_request(f"unable to parse requirement: found {term!r}, expected: a label selector term")


_UNESCAPED_COMMA = re.compile(r"(?<!\\),")
_ESCAPED = re.compile(r"\\([\\,=])")


def parse_fields(text: str, allowed: frozenset[str]) -> tuple[FieldTerm, ...]:
    """Read a field selector; raise 400 if it breaks the grammar or names a field that is not `allowed`."""
    terms = tuple(_field_term(term) for term in _UNESCAPED_COMMA.split(text) if term)
    for term in terms:
        if term.path not in allowed:
            raise bad_request(f"field label not supported: {term.path}")
    return terms


def _field_term(term: str) -> FieldTerm:
    for operator, equal in (("!=", False), ("==", True), ("=", True)):
        path, found, value = term.partition(operator)
        if found:
            return FieldTerm(path, _ESCAPED.sub(r"\1", value), equal)
    raise bad_request(f"invalid field selector: {term!r}; can't understand it")
