"""Label selectors for pods or namespaces in one canonical form, so that equal ones are evaluated once.

A null selector selects nothing, an empty one everything. Source: apimachinery's LabelSelectorAsSelector. At the end,
the expressions of node selectors. Source: k8s.io/component-helpers scheduling/corev1/nodeaffinity.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from mooring.parsing import shorten
from scheduler.kube.objects import LabelSelector, Requirement

# Limits on the labels and expressions of one selector, and on the values of all of them: each may be compared with
# every pod.
MOST_EXPRESSIONS, MOST_VALUES = 1000, 10_000
_SET_OPERATORS, _KEY_OPERATORS = ("In", "NotIn"), ("Exists", "DoesNotExist")
# Up to this many labels a plain search is fastest.
_SHORT = 8


class Selector(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """All of ``equal`` (label pairs) and ``needs`` must hold; ``nothing`` is the selector that never matches."""

    equal: tuple[tuple[str, str], ...] = ()
    needs: tuple[Requirement, ...] = ()
    nothing: bool = False

    def keys(self) -> frozenset[str]:
        return frozenset(key for key, _ in self.equal) | {need.key for need in self.needs}

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.nothing:
            return False
        for key, value in self.equal:
            if labels.get(key) != value:
                return False
        return all(matches(need, labels.get(need.key)) for need in self.needs)

    def selects(self, pairs: tuple[tuple[str, str], ...]) -> bool:
        """Return whether labels given as pairs match, as in a pod's affinity info; most selectors only test pairs."""
        if self.nothing:
            return False
        if len(self.equal) > _SHORT:
            return self.matches(dict(pairs))
        for pair in self.equal:
            if pair not in pairs:
                return False
        return not self.needs or self.matches(dict(pairs))

    def narrow(self, *selectors: "Selector") -> "Selector":
        """Return the selector that also requires what others do; nothing stays nothing."""
        parts = (self, *selectors)
        if any(part.nothing for part in parts):
            return NOTHING
        return _canonical(
            (pair for part in parts for pair in part.equal), (need for part in parts for need in part.needs)
        )

    def with_labels(self, match: Sequence[str], mismatch: Sequence[str], labels: Mapping[str, str]) -> "Selector":
        """Require the same (or another) value of these labels as a pod has, as matchLabelKeys and mismatchLabelKeys do.

        An API server merges them into the selector itself since 1.31 (pod affinity) and 1.34 (topology spread), and it
        rejects keys that a user has in both. A key that the selector already has was therefore merged, with the labels
        that the pod was created with, and these count. Labels that the pod does not have are ignored.
        """
        if not match and not mismatch:
            return self
        new_keys = labels.keys() - self.keys()
        equal = tuple((key, labels[key]) for key in match if key in new_keys)
        needs = (Requirement(key, "NotIn", frozenset({labels[key]})) for key in mismatch if key in new_keys)
        return self.narrow(Selector(equal, tuple(needs)))


EVERYTHING = Selector()
NOTHING = Selector(nothing=True)


def read_selector(selector: LabelSelector | None) -> Selector:
    """Return the canonical form; raise ValueError for a malformed expression."""
    if selector is None:
        return NOTHING
    if (expressions := expressions_of(selector)) > MOST_EXPRESSIONS:
        raise ValueError(f"label selector: {expressions} labels and expressions exceed the limit of {MOST_EXPRESSIONS}")
    if (values := sum(len(requirement.values or ()) for requirement in selector.match_expressions or ())) > MOST_VALUES:
        raise ValueError(f"label selector: {values} values exceed the limit of {MOST_VALUES}")
    return _canonical((selector.match_labels or {}).items(), map(_check, selector.match_expressions or ()))


def select_labels(labels: Mapping[str, str]) -> Selector:
    """Return the selector of exactly these labels, as services and replication controllers write it.

    Raise ValueError if there are too many.
    """
    return read_selector(LabelSelector(dict(labels)))


def expressions_of(selector: LabelSelector | None) -> int:
    return 0 if selector is None else len(selector.match_labels or ()) + len(selector.match_expressions or ())


def _check(requirement: Requirement) -> Requirement:
    operator, values = requirement.operator, requirement.values or None
    about = f"label selector: operator {shorten(operator)} of key {shorten(requirement.key)}"
    if operator not in (*_SET_OPERATORS, *_KEY_OPERATORS):
        raise ValueError(f"{about} is unknown")
    if operator in _SET_OPERATORS and not values:
        raise ValueError(f"{about} needs values")
    if operator in _KEY_OPERATORS and values:
        raise ValueError(f"{about} takes no values")
    return Requirement(requirement.key, operator, values)


def _canonical(equal: Iterable[tuple[str, str]], needs: Iterable[Requirement]) -> Selector:
    pairs, rest = set(equal), set[Requirement]()
    for need in needs:
        if need.operator == "In" and need.values is not None and len(need.values) == 1:
            pairs.update((need.key, value) for value in need.values)
        else:
            rest.add(need)
    return Selector(tuple(sorted(pairs)), tuple(sorted(rest, key=_order)))


def _order(need: Requirement) -> tuple[str, str, list[str]]:
    return need.key, need.operator, sorted(need.values or ())


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
