"""Time the plugins that count other pods: pre-filter, filter and score, once a pod over all nodes.

    python -m bench.inter_pod [--nodes 5000] [--pods 20000] [--calls 300]

The goal is 500 pods a second, both plugins together, while every placed pod changes the counts.
"""

import argparse
import gc
import statistics
import time
from random import Random
from typing import Any

import msgspec
import numpy as np

from scheduler.cache.node_columns import NodeColumns
from scheduler.cache.node_info import read_node
from scheduler.cache.pod_counts import PodCounts
from scheduler.kube.objects import Node, Pod
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.kube.selecting_objects import Service
from scheduler.kube.selection.affinity import read_affinity_info
from scheduler.plugins import image_locality, inter_pod_affinity, pod_topology_spread

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
Json = dict[str, Any]


def self_selector(app: str) -> Json:
    return {"labelSelector": {"matchLabels": {"app": app}}}


def constraint(app: str, key: str, when: str, skew: int) -> Json:
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when} | self_selector(app)


def families(app: str) -> dict[str, Json]:
    """Return pod specs by their terms about other pods."""
    away = {REQUIRED: [{"topologyKey": HOSTNAME} | self_selector(app)]}
    near = {REQUIRED: [{"topologyKey": ZONE} | self_selector(app)]}
    wish = {PREFERRED: [{"weight": 100, "podAffinityTerm": {"topologyKey": HOSTNAME} | self_selector(app)}]}
    hard, soft = "DoNotSchedule", "ScheduleAnyway"
    return {
        "plain": {},
        "spread over zones, hard": {"topologySpreadConstraints": [constraint(app, ZONE, hard, 1)]},
        "spread over zones and hosts, hard": {
            "topologySpreadConstraints": [constraint(app, ZONE, hard, 1), constraint(app, HOSTNAME, hard, 3)]
        },
        "spread over zones and hosts, soft": {
            "topologySpreadConstraints": [constraint(app, ZONE, soft, 1), constraint(app, HOSTNAME, soft, 1)]
        },
        "anti-affinity to its like by host": {"affinity": {"podAntiAffinity": away}},
        "affinity to its like by zone": {"affinity": {"podAffinity": near}},
        "preferred anti-affinity by host": {"affinity": {"podAntiAffinity": wish}},
        "spread by both and anti-affinity": {
            "topologySpreadConstraints": [constraint(app, ZONE, hard, 1), constraint(app, HOSTNAME, soft, 1)],
            "affinity": {"podAntiAffinity": away},
        },
    }


class Bench:
    """A cluster of nodes in eight zones, full of pods of all families; each has an app of its own."""

    def __init__(self, nodes: int, pods: int) -> None:
        self.random, self.nodes, self.pod_counts = Random(1), NodeColumns(), PodCounts()
        for number in range(nodes):
            labels = {HOSTNAME: f"n{number}", ZONE: f"z{number % 8}"}
            document = {"metadata": {"name": f"n{number}", "labels": labels}, "spec": {}, "status": {}}
            self.nodes.put(read_node(msgspec.convert(document, Node), None, 0.0)[0])
        self.rows = self.nodes.all_rows()
        start = time.perf_counter()
        for number in range(pods):
            app = number % max(pods // 200, 1)
            spec = list(families(f"app{app}").values())[app % 8]
            self.pod_counts.shift(self.random.randrange(nodes), read_affinity_info(pod(f"app{app}", spec)), 1)
        self.adding_us = (time.perf_counter() - start) / max(pods, 1) * 1e6

    def time(self, spec: Json, calls: int) -> list[float]:
        """Place replicas one by one; return the milliseconds of each decision."""
        taken = []
        for _ in range(calls):
            pod_info = read_pod_info(pod("measured", spec))
            assert isinstance(pod_info, PodInfo)
            start = time.perf_counter()
            left = self.rows
            filters = [
                plugin.pre_filter(pod_info, self.nodes, self.pod_counts)
                for plugin in (pod_topology_spread, inter_pod_affinity)
            ]
            for plugin in filters:
                left = left if plugin is None else left[plugin.filter(left).codes == 0]
            scorer = image_locality.pre_filter(pod_info, self.nodes)
            scores = scorer(left) if scorer else np.zeros(len(left), np.int64)
            for plugin in filters:
                scores += 0 if plugin is None else 2 * plugin.score(left)
            row = int(left[scores.argmax()])
            self.pod_counts.shift(row, pod_info.affinity_info, 1)
            taken.append((time.perf_counter() - start) * 1000)
        return taken


def pod(app: str, spec: Json) -> Pod:
    metadata = {"name": "p", "namespace": "default", "uid": "u", "labels": {"app": app, "tier": "x"}}
    return msgspec.convert({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]} | spec}, Pod)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000, help="nodes (default 5000)")
    parser.add_argument("--pods", type=int, default=20000, help="pods assigned before (default 20000)")
    parser.add_argument("--calls", type=int, default=300, help="pods placed of each family (default 300)")
    options = parser.parse_args()
    bench = Bench(options.nodes, options.pods)
    gc.disable()
    print(f"{options.nodes} nodes, {options.pods} pods assigned, {bench.adding_us:.1f} us each with reading")
    print(f"{'family':38} {'p50 ms':>7} {'p99 ms':>7} {'pods/s':>8}")
    for name, spec in families("measured").items():
        _print(name, bench.time(spec, options.calls))
    service = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "measured"}}}
    bench.pod_counts.default_selectors.put_service(msgspec.convert(service, Service))
    _print("spread by the system's default", bench.time({}, options.calls))


def _print(name: str, taken: list[float]) -> None:
    p99 = sorted(taken)[int(len(taken) * 0.99) - 1]
    print(f"{name:38} {statistics.median(taken):7.3f} {p99:7.3f} {1000 * len(taken) / sum(taken):8.0f}")


if __name__ == "__main__":
    main()
