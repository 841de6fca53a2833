"""Label selectors and the terms made of them, read once into one canonical form."""

from typing import Any

import msgspec
import pytest

from scheduler.kube.objects import LabelSelector, Pod
from scheduler.kube.selecting_objects import Service
from scheduler.kube.selection import selectors
from scheduler.kube.selection.affinity import read_affinity_info
from scheduler.kube.selection.selectors import EVERYTHING, NOTHING, read_selector, select_labels
from scheduler.kube.selection.spread_constraints import DefaultSelectors
from tests.support.calls import count_calls

Json = dict[str, Any]


def selector(**fields: Any) -> LabelSelector:
    return msgspec.convert(fields, LabelSelector)


def expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


def pod(labels: dict[str, str], term: Json, **metadata: Any) -> Pod:
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"} | term]}}
    about = {"name": "p", "namespace": "a", "labels": labels} | metadata
    return msgspec.convert({"metadata": about, "spec": {"affinity": affinity}}, Pod)


@pytest.mark.parametrize(
    ("fields", "labels", "expected"),
    [
        ({}, {}, True),
        ({}, {"a": "1"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "2"}, False),
        ({"matchLabels": {"a": "1", "b": "2"}}, {"a": "1"}, False),
        ({"matchExpressions": [expression("a", "In", "1", "2")]}, {"a": "2"}, True),
        ({"matchExpressions": [expression("a", "In", "1", "2")]}, {}, False),
        ({"matchExpressions": [expression("a", "NotIn", "1")]}, {"a": "1"}, False),
        ({"matchExpressions": [expression("a", "NotIn", "1")]}, {}, True),
        ({"matchExpressions": [expression("a", "Exists")]}, {"a": ""}, True),
        ({"matchExpressions": [expression("a", "DoesNotExist")]}, {"a": ""}, False),
        ({"matchLabels": {"a": "1"}, "matchExpressions": [expression("a", "NotIn", "1")]}, {"a": "1"}, False),
    ],
)
def test_all_of_a_selector_must_hold(fields: Json, labels: dict[str, str], expected: bool) -> None:
    """Labels and expressions alike; an empty selector selects everything."""
    assert read_selector(selector(**fields)).matches(labels) is expected


def test_a_null_selector_selects_nothing() -> None:
    """Null differs from the empty selector, and stays nothing whatever is required in addition."""
    assert read_selector(None) == NOTHING
    assert not NOTHING.matches({})
    assert NOTHING.with_labels(["a"], [], {"a": "1"}) == NOTHING
    assert read_selector(selector()) == EVERYTHING


def test_equal_selectors_are_one_however_they_are_written() -> None:
    """A label is an expression with one value; order and repetition do not matter."""
    written = read_selector(selector(matchLabels={"b": "2", "a": "1"}))
    spelled = [expression("a", "In", "1", "1"), expression("b", "In", "2"), expression("a", "In", "1")]
    other = read_selector(selector(matchExpressions=spelled))
    assert (written, hash(written)) == (other, hash(other))


@pytest.mark.parametrize(
    ("own", "keys", "expected"),
    [
        (
            {"matchLabels": {"app": "x"}},
            {"matchLabelKeys": ["rev", "absent"]},
            {"matchLabels": {"app": "x", "rev": "2"}},
        ),
        (
            {"matchLabels": {"app": "x"}},
            {"mismatchLabelKeys": ["rev"]},
            {"matchLabels": {"app": "x"}, "matchExpressions": [expression("rev", "NotIn", "2")]},
        ),
        # The API server has merged these keys already.
        ({"matchLabels": {"rev": "1"}}, {"matchLabelKeys": ["rev"]}, {"matchLabels": {"rev": "1"}}),
        (
            {"matchExpressions": [expression("rev", "NotIn", "1")]},
            {"mismatchLabelKeys": ["rev"]},
            {"matchExpressions": [expression("rev", "NotIn", "1")]},
        ),
    ],
)
def test_match_label_keys_ask_for_the_pods_own_values(own: Json, keys: Json, expected: Json) -> None:
    """Labels that the pod lacks are ignored."""
    (read,) = read_affinity_info(pod({"rev": "2"}, {"labelSelector": own} | keys)).required_anti_affinity
    assert read.scope.selector == read_selector(selector(**expected))


@pytest.mark.parametrize(
    ("fields", "covered"),
    [
        ({}, {"a"}),
        ({"namespaces": ["b"]}, {"b"}),
        ({"namespaceSelector": {}}, {"a", "b", "c"}),
        ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, {"c"}),
        ({"namespaces": ["b"], "namespaceSelector": {"matchLabels": {"team": "x"}}}, {"b", "c"}),
    ],
)
def test_a_term_applies_to_its_namespaces(fields: Json, covered: set[str]) -> None:
    """Its pod's own namespace if it names none; else those named and those selected."""
    (term,) = read_affinity_info(pod({}, {"labelSelector": {}} | fields)).required_anti_affinity
    labels = {"a": {}, "b": {}, "c": {"team": "x"}}
    assert {name for name in labels if term.scope.covers(name, labels[name])} == covered


def test_replicas_share_one_affinity_info() -> None:
    """Pods that are equal to the plugins are one value in memory; one that is being deleted is another."""
    term = {"labelSelector": {"matchLabels": {"app": "x"}}}
    first, second = (read_affinity_info(pod({"app": "x"}, term, name=name)) for name in ("p", "q"))
    assert first is second
    assert read_affinity_info(pod({"app": "x"}, term, deletionTimestamp="2026-01-01T00:00:00Z")).is_terminating


def test_a_selector_without_pods_spreads_none() -> None:
    """A pod without services and controller has no default constraints."""
    assert DefaultSelectors().selector_of(pod({"app": "x"}, {})) is None


def test_the_selectors_of_many_services_are_combined_once() -> None:
    """A namespace may have thousands of services, and each pod without constraints of its own reads them all."""
    default_selectors, labels = DefaultSelectors(), {f"l{number}": "x" for number in range(100)}
    for label in labels:
        fields = {"metadata": {"name": label, "namespace": "a"}, "spec": {"selector": {label: "x"}}}
        default_selectors.put_service(msgspec.convert(fields, Service))
    combined = []
    calls = count_calls(selectors._canonical, lambda: combined.append(default_selectors.selector_of(pod(labels, {}))))
    assert combined == [select_labels(labels)]
    assert calls == 1
