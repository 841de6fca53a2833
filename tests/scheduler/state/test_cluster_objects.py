"""Namespaces and budgets reach the state by their watches."""

from typing import Any

import msgspec
import pytest

from mooring.kube.events import Changed, Identity, Removed, Unreadable
from scheduler.cache.node_columns import NodeColumns
from scheduler.cache.pod_counts import PodCounts
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.kube.selecting_objects import Namespace, PodDisruptionBudget
from scheduler.state.cluster_objects import ClusterObject, ClusterObjects

Json = dict[str, Any]


@pytest.fixture
def around() -> ClusterObjects:
    return ClusterObjects(PodCounts(), NodeColumns())


def changed(kind: type[ClusterObject], name: str, spec: Json | None = None, **metadata: Any) -> Changed[ClusterObject]:
    namespace = "" if kind is Namespace else "a"
    document = {"metadata": {"name": name, "namespace": namespace} | metadata, "spec": spec or {}}
    return Changed(Identity(name, namespace), msgspec.convert(document, kind))


def test_only_a_namespace_that_changed_can_help_a_pod(around: ClusterObjects) -> None:
    """A namespaceSelector selects by its labels; a heartbeat changes nothing."""
    assert around.take(Namespace, changed(Namespace, "n", labels={"team": "x"})) == (ClusterEvent.NAMESPACE, "")
    assert around.take(Namespace, changed(Namespace, "n", labels={"team": "x"})) == (NO_EVENT, "")
    assert around.pod_counts.namespace_labels("n") == {"team": "x"}
    assert around.take(Namespace, Removed(Identity("n"))) == (ClusterEvent.NAMESPACE, "")
    assert around.pod_counts.namespace_labels("n") == {}


def test_what_is_no_longer_listed_is_gone(around: ClusterObjects) -> None:
    """A list is complete: after a gap in the watch, the objects that are gone are removed here too."""
    around.take(Namespace, changed(Namespace, "n", labels={"a": "1"}))
    around.take(Namespace, changed(Namespace, "m"))
    assert around.keep(Namespace, [Identity("m")]) == ClusterEvent.NAMESPACE
    assert around.pod_counts.namespace_names() == {"m"}


def test_what_cannot_be_read_is_left_out_with_its_reason(around: ClusterObjects) -> None:
    """A budget protects nothing from then on, even if it did before."""
    around.take(PodDisruptionBudget, changed(PodDisruptionBudget, "o", {"selector": {"matchLabels": {"app": "x"}}}))
    bad = {"selector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}}
    _, fault = around.take(PodDisruptionBudget, changed(PodDisruptionBudget, "o", bad))
    assert "operator 'Gt' of key 'a' is unknown" in fault
    unreadable = Unreadable(Identity("o", "a"), "why")
    assert around.take(PodDisruptionBudget, unreadable) == (NO_EVENT, "")
