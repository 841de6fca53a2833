"""Label selectors and the terms made of them, read once into one canonical form."""

from typing import Any

import msgspec

from scheduler.kube.objects import LabelSelector, Pod
from scheduler.kube.selecting_objects import Service
from scheduler.kube.selection import selectors
from scheduler.kube.selection.affinity import read_affinity_info
from scheduler.kube.selection.selectors import read_selector, select_labels
from scheduler.kube.selection.spread_constraints import DefaultSelectors
from tests.support.calls import count_calls

Json = dict[str, Any]


def selector(**fields: Any) -> LabelSelector:
    return msgspec.convert(fields, LabelSelector)


def pod(labels: dict[str, str], term: Json, **metadata: Any) -> Pod:
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"} | term]}}
    about = {"name": "p", "namespace": "a", "labels": labels} | metadata
    return msgspec.convert({"metadata": about, "spec": {"affinity": affinity}}, Pod)


def test_equal_selectors_are_one_however_they_are_written() -> None:
    """A label is an expression with one value; order and repetition do not matter."""
    written = read_selector(selector(matchLabels={"b": "2", "a": "1"}))
    values_by_key = ("a", ["1", "1"]), ("b", ["2"]), ("a", ["1"])
    expressions = [{"key": key, "operator": "In", "values": values} for key, values in values_by_key]
    other = read_selector(selector(matchExpressions=expressions))
    assert (written, hash(written)) == (other, hash(other))


def test_replicas_share_one_affinity_info() -> None:
    """Pods that are equal to the plugins are one value in memory; one that is being deleted is another."""
    term = {"labelSelector": {"matchLabels": {"app": "x"}}}
    first, second = (read_affinity_info(pod({"app": "x"}, term, name=name)) for name in ("p", "q"))
    assert first is second
    assert read_affinity_info(pod({"app": "x"}, term, deletionTimestamp="2026-01-01T00:00:00Z")).is_terminating


def test_a_selector_without_pods_spreads_none() -> None:
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
