"""Namespaces, services and controllers reach the pod counts by their watches."""

from typing import Any

import msgspec
import pytest

from mooring.kube.events import Changed, Identity, Removed, Unreadable
from scheduler.cache.node_columns import NodeColumns
from scheduler.cache.pod_counts import PodCounts
from scheduler.kube.cluster_event import NO_EVENT, ClusterEvent
from scheduler.kube.objects import Pod
from scheduler.kube.selecting_objects import Namespace, ReplicaSet, Service, StatefulSet
from scheduler.kube.selection.selectors import select_labels
from scheduler.state.cluster_objects import ClusterObject, ClusterObjects

Json = dict[str, Any]


@pytest.fixture
def around() -> ClusterObjects:
    return ClusterObjects(PodCounts(), NodeColumns())


def changed(kind: type[ClusterObject], name: str, spec: Json | None = None, **metadata: Any) -> Changed[ClusterObject]:
    namespace = "" if kind is Namespace else "a"
    document = {"metadata": {"name": name, "namespace": namespace} | metadata, "spec": spec or {}}
    return Changed(Identity(name, namespace), msgspec.convert(document, kind))


def pod(owner: str = "") -> Pod:
    metadata: Json = {"name": "p", "namespace": "a", "labels": {"app": "x"}}
    if owner:
        metadata["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "controller": True}]
    return msgspec.convert({"metadata": metadata}, Pod)


def test_only_a_namespace_that_changed_can_help_a_pod(around: ClusterObjects) -> None:
    """A namespaceSelector selects by its labels; a heartbeat changes nothing."""
    assert around.take(Namespace, changed(Namespace, "n", labels={"team": "x"})) == (ClusterEvent.NAMESPACE, "")
    assert around.take(Namespace, changed(Namespace, "n", labels={"team": "x"})) == (NO_EVENT, "")
    assert around.pod_counts.namespace_labels("n") == {"team": "x"}
    assert around.take(Namespace, Removed(Identity("n"))) == (ClusterEvent.NAMESPACE, "")
    assert around.pod_counts.namespace_labels("n") == {}


def test_what_is_no_longer_listed_is_gone(around: ClusterObjects) -> None:
    around.take(Namespace, changed(Namespace, "n", labels={"a": "1"}))
    around.take(Namespace, changed(Namespace, "m"))
    around.take(Service, changed(Service, "s", {"selector": {"app": "x"}}))
    assert around.keep(Namespace, [Identity("m")]) == ClusterEvent.NAMESPACE
    assert around.pod_counts.namespace_names() == {"m"}
    assert around.pod_counts.default_selectors.selector_of(pod()) == select_labels({"app": "x"})
    around.keep(Service, ())
    assert around.pod_counts.default_selectors.selector_of(pod()) is None


def test_a_controller_speaks_for_its_own_pods_only(around: ClusterObjects) -> None:
    """By the owner reference marked controller, in the pod's namespace and of the same kind."""
    around.take(ReplicaSet, changed(ReplicaSet, "o", {"selector": {"matchLabels": {"app": "x"}}}))
    assert around.pod_counts.default_selectors.selector_of(pod("ReplicaSet")) == select_labels({"app": "x"})
    assert around.pod_counts.default_selectors.selector_of(pod("StatefulSet")) is None
    assert around.pod_counts.default_selectors.selector_of(pod()) is None
    around.take(ReplicaSet, Removed(Identity("o", "a")))
    assert around.pod_counts.default_selectors.selector_of(pod("ReplicaSet")) is None


def test_what_cannot_be_read_is_left_out_with_its_reason(around: ClusterObjects) -> None:
    """It selects nothing from then on, even if it did before."""
    around.take(StatefulSet, changed(StatefulSet, "o", {"selector": {"matchLabels": {"app": "x"}}}))
    bad = {"selector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}}
    _, fault = around.take(StatefulSet, changed(StatefulSet, "o", bad))
    assert "operator 'Gt' of key 'a' is unknown" in fault
    assert around.pod_counts.default_selectors.selector_of(pod("StatefulSet")) is None
    around.take(Service, changed(Service, "s", {"selector": {"app": "x"}}))
    assert around.take(Service, Unreadable(Identity("s", "a"), "why")) == (NO_EVENT, "")
    assert around.pod_counts.default_selectors.selector_of(pod()) is None
