"""Label selectors for pods or namespaces in one canonical form, so that equal ones are evaluated once.

A null selector selects nothing, an empty one everything. Source: apimachinery's LabelSelectorAsSelector. At the end,
the expressions of node selectors. Source: k8s.io/component-helpers scheduling/corev1/nodeaffinity.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from mooring.parsing import shorten
from scheduler.kube.objects import LabelSelector, Requirement

# Limits on the labels and expressions of one selector, and on the values of all of them: each may be compared with
# every pod.
MOST_EXPRESSIONS, MOST_VALUES = 1000, 10_000
_VALUED = ("In", "NotIn")
_UNVALUED = ("Exists", "DoesNotExist")
# Up to this many values a plain search is fastest.
_FEW = 8


class Needs(msgspec.Struct, frozen=True, order=True, gc=False):
    """One requirement: the label ``key`` has (or has not) one of ``values``, or exists (or does not)."""

    key: str
    operator: str
    # Sorted, for binary search.
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "In":
                return self._has(labels.get(self.key))
            case "NotIn":
                return not self._has(labels.get(self.key))
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels

    def _has(self, value: str | None) -> bool:
        if value is None or len(self.values) <= _FEW:
            return value in self.values
        place = bisect_left(self.values, value)
        return place < len(self.values) and self.values[place] == value


class Selector(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """All of ``equal`` (label pairs) and ``needs`` must hold; ``nothing`` is the selector that never matches."""

    equal: tuple[tuple[str, str], ...] = ()
    needs: tuple[Needs, ...] = ()
    nothing: bool = False

    def keys(self) -> frozenset[str]:
        return frozenset(key for key, _ in self.equal) | {need.key for need in self.needs}

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.nothing:
            return False
        for key, value in self.equal:
            if labels.get(key) != value:
                return False
        return all(need.holds(labels) for need in self.needs)

    def selects(self, pairs: tuple[tuple[str, str], ...]) -> bool:
        """Return whether labels given as pairs match, as in a pod's affinity info; most selectors only test pairs."""
        if self.nothing:
            return False
        if len(self.equal) > _FEW:
            return self.matches(dict(pairs))
        for pair in self.equal:
            if pair not in pairs:
                return False
        return not self.needs or self.matches(dict(pairs))

    def narrowed(self, needs: Iterable[Needs]) -> "Selector":
        """Return the selector that also requires ``others``; a selector that selects nothing stays unchanged."""
        return self if self.nothing else _canonical([*self.all_needs(), *needs])

    def with_labels(self, match: Iterable[str], mismatch: Iterable[str], labels: Mapping[str, str]) -> "Selector":
        """Require the same (or another) value of these labels as a pod has, as matchLabelKeys and mismatchLabelKeys do.

        An API server merges them into the selector itself since 1.31 (pod affinity) and 1.34 (topology spread), and it
        rejects keys that a user has in both. A key that the selector already has was therefore merged, with the labels
        that the pod was created with, and these count. Labels that the pod does not have are ignored.
        """
        own_keys = self.keys()
        needs_equal = [Needs(key, "In", (labels[key],)) for key in match if key in labels and key not in own_keys]
        needs_unequal = [
            Needs(key, "NotIn", (labels[key],)) for key in mismatch if key in labels and key not in own_keys
        ]
        return self.narrowed(needs_equal + needs_unequal) if needs_equal or needs_unequal else self

    def all_needs(self) -> Iterator[Needs]:
        """Yield all requirements; none for the selector that never matches."""
        yield from (Needs(key, "In", (value,)) for key, value in self.equal)
        yield from self.needs


EVERYTHING = Selector()
NOTHING = Selector(nothing=True)


def read_selector(selector: LabelSelector | None) -> Selector:
    """Return the canonical form; raise ValueError for a malformed expression."""
    if selector is None:
        return NOTHING
    _hold_to_bounds(selector)
    needs = [Needs(key, "In", (value,)) for key, value in (selector.match_labels or {}).items()]
    needs += [_read(requirement) for requirement in selector.match_expressions or ()]
    return _canonical(needs)


def select_labels(labels: Mapping[str, str]) -> Selector:
    """Return the selector of exactly these labels, as services and replication controllers write it.

    Raise ValueError if there are too many.
    """
    _hold_to_bounds(LabelSelector(dict(labels)))
    return _canonical([Needs(key, "In", (value,)) for key, value in labels.items()])


def expressions_of(selector: LabelSelector | None) -> int:
    return 0 if selector is None else len(selector.match_labels or ()) + len(selector.match_expressions or ())


def _hold_to_bounds(selector: LabelSelector) -> None:
    if (expressions := expressions_of(selector)) > MOST_EXPRESSIONS:
        raise ValueError(f"label selector: {expressions} labels and expressions exceed the limit of {MOST_EXPRESSIONS}")
    if (values := sum(len(requirement.values or ()) for requirement in selector.match_expressions or ())) > MOST_VALUES:
        raise ValueError(f"label selector: {values} values exceed the limit of {MOST_VALUES}")


def _read(expression: Requirement) -> Needs:
    operator, values = expression.operator, tuple(sorted(expression.values or ()))
    about = f"label selector: operator {shorten(operator)} of key {shorten(expression.key)}"
    if operator not in (*_VALUED, *_UNVALUED):
        raise ValueError(f"{about} is unknown")
    if operator in _VALUED and not values:
        raise ValueError(f"{about} needs values")
    if operator in _UNVALUED and values:
        raise ValueError(f"{about} takes no values")
    return Needs(expression.key, operator, values)


def _canonical(needs: Iterable[Needs]) -> Selector:
    distinct = sorted(set(needs))
    equal = tuple((need.key, need.values[0]) for need in distinct if need.operator == "In" and len(need.values) == 1)
    return Selector(equal, tuple(need for need in distinct if need.operator != "In" or len(need.values) != 1))


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def matches(requirement: Requirement, value: str | None) -> bool:
    """Return whether an expression holds for a label's value, None if absent; an unknown operator never holds."""
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement.operator, value, values)
        case _:
            return False


def _compares(operator: str, value: str | None, values: Collection[str]) -> bool:
    if value is None or len(values) != 1:
        return False
    (limit,) = values
    if not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(limit):
        return False
    return int(value) > int(limit) if operator == "Gt" else int(value) < int(limit)
