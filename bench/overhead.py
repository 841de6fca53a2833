"""Time what a pod costs because of features that others use and it does not; no I/O. Exit status 1 above 5 %.

    python -m bench.overhead [--nodes 5000] [--pods 1500] [--rounds 3]

The same pods, with 2 VFs and none of these features, are scheduled in several clusters that differ in one thing each.
The clusters take turns pod by pod, so that other work on this machine affects them alike, and of each pod the best of
some rounds counts. All must come to the same decisions. What is timed is `step`, in CPU time of its thread.
"""

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from bench import constraints
from bench.loads import scheduler_load as load
from bench.loads import storage_load as storage
from bench.scheduler import Scheduling
from mooring.kube.events import Changed, Identity
from scheduler.constraints.kinds import NONE
from scheduler.cycle.decisions import Bind
from scheduler.kube.outcomes import BOUND
from scheduler.kube.selecting_objects import PodDisruptionBudget

_MOST_SLOWER = 1.05
_BUDGETS = 20
_GOING = {
    "metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"},
    "status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
}


def _nothing(nodes: int) -> Scheduling:
    return _filled(Scheduling(nodes))


def _volumes(nodes: int) -> Scheduling:
    """A disk and a limit on every node, and half as many claims that are bound."""
    cluster = _nothing(nodes)
    tell = storage.teller(cluster.machine, cluster.now)
    storage.classes(tell)
    storage.limits(tell, nodes, 20)
    storage.local_disks(tell, nodes)
    storage.bound_claims(tell, nodes // 2)
    return cluster


def _budgets(nodes: int) -> Scheduling:
    """Budgets that select some pods."""
    cluster = _nothing(nodes)
    for number in range(_BUDGETS):
        metadata = {"name": f"b{number}", "namespace": "default"}
        spec = {"selector": {"matchLabels": {"app": f"a{number}"}}}
        budget = msgspec.convert({"metadata": metadata, "spec": spec}, PodDisruptionBudget)
        cluster.machine.handle(PodDisruptionBudget, Changed(Identity(f"b{number}", "default"), budget), cluster.now)
    return cluster


def _nominated(nodes: int) -> Scheduling:
    """A nominated pod that waits on one node for its victim to go."""
    cluster = _filled(_nothing(nodes), going=True)
    spec = {"priority": 9, "nodeSelector": {"kubernetes.io/hostname": load.node_name(0)}}
    pod = load.pod(900_001, [{}], "60", spec)
    cluster.offer([pod | {"status": {"nominatedNodeName": load.node_name(0)}}])
    cluster.decide()
    if not cluster.machine.reservations:
        raise ValueError("the pod is not nominated")
    return cluster


def _filled(cluster: Scheduling, *, going: bool = False) -> Scheduling:
    """Add an assigned pod that fills the first node."""
    pod = load.pod(900_000, [], "64", {"nodeName": load.node_name(0), "priority": -1})
    if going:
        pod |= {"metadata": pod["metadata"] | _GOING["metadata"], "status": _GOING["status"]}
    cluster.offer([pod])
    return cluster


WORLDS: dict[str, Callable[[int], Scheduling]] = {
    "nothing": _nothing,
    "nothing again": _nothing,
    "volumes": _volumes,
    "disruption budgets": _budgets,
    "a nominated pod": _nominated,
    "FPGAs, no constraint": lambda nodes: _filled(constraints.cluster(nodes, NONE)),
    "FPGAs, constraint": lambda nodes: _filled(constraints.cluster(nodes, constraints.fpga_kinds())),
}


def turns(nodes: int, pods: int) -> list[list[float]]:
    """Return for each cluster the seconds of each pod's decision."""
    clusters = [build(nodes) for build in WORLDS.values()]
    for cluster in clusters:
        cluster.offer([load.mixed_pod(number) for number in range(pods)])
    gc.collect()
    gc.freeze()
    times = [list[float]() for _ in clusters]
    for number in range(pods):
        # The first one in a turn finds the processor's caches cold.
        order = [(number + place) % len(clusters) for place in range(len(clusters))]
        chosen = set()
        for place in order:
            took, bind = _decide(clusters[place])
            times[place].append(took)
            chosen.add(bind.assigned.node)
        if len(chosen) > 1:
            raise ValueError(f"pod {number} was placed on {sorted(chosen)}")
    gc.unfreeze()
    return times


def _decide(cluster: Scheduling) -> tuple[float, Bind]:
    cluster.now += 0.0001
    began = time.thread_time()
    made = cluster.machine.step(cluster.now)
    took = time.thread_time() - began
    bind = next((one for one in made or () if isinstance(one, Bind)), None)
    if bind is None:
        raise ValueError(f"a pod of the load found no node: {made}")
    cluster.machine.finished(bind, BOUND, cluster.now)
    return took, bind


def _print(name: str, times: Sequence[float], alone: Sequence[float]) -> bool:
    """Print a cluster's line; return whether its goal is met."""
    slower = sum(times) / sum(alone)
    micro = [1e6 * one for one in times]
    met = slower <= _MOST_SLOWER
    verdict = "met" if met else "MISSED"
    print(
        f"{name:20} {statistics.mean(micro):8.1f} {statistics.median(micro):8.1f} {slower:8.3f}  {verdict}", flush=True
    )
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000, help="nodes (default 5000)")
    parser.add_argument("--pods", type=int, default=1500, help="pods (default 1500)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which each pod's best counts (default 3)")
    options = parser.parse_args()
    rounds = [turns(options.nodes, options.pods) for _ in range(options.rounds)]
    # Equal rounds make equal decisions, so that each pod has a best time of its own.
    best = [[min(times) for times in zip(*same, strict=True)] for same in zip(*rounds, strict=True)]
    print(f"{options.nodes} nodes, {options.pods} pods; CPU time in µs a pod; the most is {_MOST_SLOWER} of the first")
    print(f"{'there is':20} {'mean':>8} {'p50':>8} {'ratio':>8}")
    met = [_print(name, times, best[0]) for name, times in zip(WORLDS, best, strict=True)]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
