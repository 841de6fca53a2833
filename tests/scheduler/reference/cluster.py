"""A small cluster as the plugins see it: nodes as columns and the counts of assigned pods, changed one by one."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from scheduler.cache.node_columns import NodeColumns
from scheduler.cache.node_info import read_node
from scheduler.cache.pod_counts import PodCounts
from scheduler.kube.objects import Node, Pod
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.selecting_objects import ReplicaSet, ReplicationController, Service, StatefulSet
from scheduler.kube.selection.affinity import AffinityInfo, read_affinity_info
from tests.scheduler import group_life
from tests.scheduler.reference.world import Json, World

_CONTROLLERS: dict[str, type[ReplicaSet | ReplicationController | StatefulSet]] = {
    one.__name__: one for one in (ReplicaSet, ReplicationController, StatefulSet)
}


def tell_selecting_objects(world: World, pod_counts: PodCounts) -> None:
    """Let counts know a world's namespaces, services and controllers."""
    for name, labels in world.namespaces.items():
        pod_counts.put_namespace(name, labels)
    for service in world.services:
        pod_counts.default_selectors.put_service(msgspec.convert(service, Service))
    for controller in world.controllers:
        kind = _CONTROLLERS[controller["kind"]]
        pod_counts.default_selectors.put_controller(msgspec.convert(controller, kind))


class Cluster:
    """A world's nodes and pods; changes here are made there too."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes = NodeColumns()
        self.pod_counts = PodCounts()
        tell_selecting_objects(world, self.pod_counts)
        for node in world.nodes:
            self._put(node)
        for pod in world.pods:
            self._shift(pod, 1)

    def assigned(self, pod: Json, node: Json) -> None:
        pod["spec"]["nodeName"] = node["metadata"]["name"]
        self.world.pods.append(pod)
        self._shift(pod, 1)

    def unassign(self, pod: Json) -> None:
        self.world.pods.remove(pod)
        self._shift(pod, -1)

    def add(self, node: Json) -> None:
        self.world.nodes.append(node)
        self._put(node)

    def remove(self, node: Json) -> None:
        for pod in [one for one in self.world.pods if one["spec"]["nodeName"] == node["metadata"]["name"]]:
            self.unassign(pod)
        self.world.nodes.remove(node)
        self.nodes.remove(node["metadata"]["name"])

    def check(self) -> None:
        self.pod_counts.check([self._place(pod) for pod in self.world.pods])

    def rows(self, nodes: Sequence[Json]) -> Any:
        return np.array([self.nodes.row_of[node["metadata"]["name"]] for node in nodes], np.intp)

    def _place(self, pod: Json) -> tuple[int, AffinityInfo]:
        return self.nodes.row_of[pod["spec"]["nodeName"]], read_affinity_info(msgspec.convert(pod, Pod))

    def _put(self, node: Json) -> None:
        self.nodes.put(read_node(msgspec.convert(node, Node), None, 0.0)[0])

    def _shift(self, pod: Json, count: int) -> None:
        self.pod_counts.shift(*self._place(pod), count)


def pod_info_of(pod: Json) -> PodInfo:
    return group_life.pod_info_of(msgspec.convert(pod, Pod))


def refusals(plugin: Any, cluster: Cluster, pod: Json) -> list[str]:
    """Return why a plugin refuses each node; empty if it does not."""
    rows = cluster.rows(cluster.world.nodes)
    wide = plugin.pre_filter(pod_info_of(pod), cluster.nodes, cluster.pod_counts)
    if wide is None:
        return [""] * len(rows)
    found = wide.filter(rows)
    return ["" if code == 0 else ", ".join(found.texts[code - 1]) for code in found.codes.tolist()]


def scores(plugin: Any, cluster: Cluster, pod: Json, candidates: Sequence[Json]) -> list[int]:
    """Return a plugin's scores of these nodes."""
    wide = plugin.pre_filter(pod_info_of(pod), cluster.nodes, cluster.pod_counts)
    return [0] * len(candidates) if wide is None else list(wide.score(cluster.rows(candidates)).tolist())
