"""Time the scheduler's decisions alone, on one core, without I/O; print a line a load, and whether each goal is met.

    python -m bench.scheduler [--pods 10000] [--rounds 4] [--only TEXT]

Nodes and pods go into `Machine` as the watches would give them. What is timed is `step` with the answer to its bind, in
CPU time of its thread, so that a machine shared with others does not count. Loads take turns for some rounds and the
best round counts, so that ratios meet the same noise. The reference looks at every node for every pod. Exit status 1 if
a goal is missed.
"""

import argparse
import gc
import math
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from bench.loads import scheduler_load as load
from bench.loads.full_scan import FullScan
from mooring.kube.events import Changed, Identity, Removed
from scheduler.constraints.kinds import NONE, Kinds
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import BOUND
from scheduler.state.machine import Machine

# UNIX time of the first decision; each decision is so much later, in seconds.
_START = 1_800_000_000.0
_TICK_S = 0.0001
_REFERENCE_PODS = 20
# In the flood a pod ends after so many binds: each end may help the pods that fit nowhere.
_ENDS_EVERY = 100
# The longest bar of a plot, in characters.
_BAR = 60


class Scheduling:
    """A machine with nodes, fed with pods; time is simulated."""

    def __init__(self, nodes: int, kinds: Kinds = NONE) -> None:
        self.machine = Machine("mooring", kinds=kinds)
        self.now = _START
        for number in range(nodes):
            node = msgspec.convert(load.node(number), Node)
            self.machine.nodes(Changed(Identity(node.metadata.name), node), self.now)

    def offer(self, documents: Sequence[load.Json]) -> None:
        """Queue pods, each younger than the one before."""
        for document in documents:
            pod = msgspec.convert(document, Pod)
            pod.metadata.uid = f"{_hash(pod.metadata.name):032x}"
            pod.metadata.creation_timestamp = f"2027-01-01T00:00:00.{pod.metadata.name[-6:]}Z"
            self.machine.pods(Changed(_identity(pod), pod), self.now)

    def decide(self) -> tuple[float, Bind | None] | None:
        """Decide once; return the seconds that it took, and the bind if there is one; None if no pod is ready."""
        self.now += _TICK_S
        began = time.thread_time()
        instructions = self.machine.step(self.now)
        if instructions is None:
            return None
        found = next((one for one in instructions if isinstance(one, Bind)), None)
        if found is not None:
            self.machine.finished(found, BOUND, self.now)
        return time.thread_time() - began, found

    def end(self, decision: Bind) -> None:
        """Remove a bound pod."""
        self.machine.pods(Removed(_identity(decision.pod_info.pod)), self.now)


def _hash(name: str) -> int:
    # Spread like a real uid, and the same in every run.
    return int(name[-6:]) * 0x9E3779B97F4A7C15 & (1 << 64) - 1


def _identity(pod: Pod) -> Identity:
    return Identity(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)


@dataclass(frozen=True, slots=True)
class Load:
    """A number of nodes and a kind of pod; ``goal`` in pods/s, 0 for none; ``share`` of the usual number of pods."""

    name: str
    nodes: int
    pods: Callable[[int], load.Json]
    goal: float = 0.0
    share: float = 1.0


LOADS = (
    Load("mixed, 1,000 nodes", 1_000, load.mixed_pod),
    Load("mixed, 5,000 nodes", 5_000, load.mixed_pod, 10_000),
    Load("mixed, 20,000 nodes", 20_000, load.mixed_pod),
    Load("replicas, 5,000 nodes", 5_000, load.replica),
    Load("spread, 5,000 nodes", 5_000, load.spread_pod, 500, 0.25),
    Load("apart, 5,000 nodes", 5_000, load.apart_pod, 500, 0.25),
)


def measure(one: Load, pods: int) -> list[float]:
    """Return the seconds of each pod's decision; raise ValueError if a pod finds no node."""
    scheduling = Scheduling(one.nodes)
    scheduling.offer([one.pods(number) for number in range(int(pods * one.share))])
    _settle()
    times: list[float] = []
    while (decided := scheduling.decide()) is not None:
        took, bind = decided
        if bind is None:
            raise ValueError(f"{one.name}: pod {len(times)} of the load found no node")
        times.append(took)
    if len(times) != int(pods * one.share):
        raise ValueError(f"{one.name}: {len(times)} pods were bound of {int(pods * one.share)}")
    scheduling.machine.check()
    return times


def _settle() -> None:
    gc.collect()
    gc.freeze()


def flood(nodes: int, pods: int, impossible: int) -> tuple[float, float]:
    """Bind pods among so many that fit nowhere; return seconds of all decisions, and of the binds alone."""
    scheduling = Scheduling(nodes)
    scheduling.offer([load.mixed_pod(2 * number) for number in range(pods)])
    scheduling.offer([load.impossible_pod(2 * number + 1) for number in range(impossible)])
    _settle()
    total, binds = 0.0, list[float]()
    while len(binds) < pods and (decided := scheduling.decide()) is not None:
        took, bind = decided
        total += took
        if bind is not None:
            binds.append(took)
            if len(binds) % _ENDS_EVERY == 0:
                scheduling.end(bind)
    if len(binds) != pods:
        raise ValueError(f"flood: {len(binds)} pods were bound of {pods}")
    return total, sum(binds)


def reference(nodes: int) -> list[float]:
    """Return the seconds of each of a few decisions that judge every node."""
    scan = FullScan([load.node(number) for number in range(nodes)])
    times = []
    for number in range(_REFERENCE_PODS):
        began = time.thread_time()
        scan.decide(load.mixed_pod(number))
        times.append(time.thread_time() - began)
    return times


def best(rounds: Sequence[Sequence[float]]) -> Sequence[float]:
    return min(rounds, key=sum)


def line(name: str, times: Sequence[float], goal: float) -> bool:
    """Print a load's line; return whether its goal is met."""
    micro = sorted(1e6 * took for took in times)
    rate, p99 = len(times) / sum(times), micro[int(len(micro) * 0.99)]
    met = rate >= goal
    verdict = f"{goal:8,.0f} {'met' if met else 'MISSED'}" if goal else ""
    mean = statistics.mean(micro)
    print(f"{name:26} {len(times):7} {rate:9,.0f} {mean:8.1f} {statistics.median(micro):8.1f} {p99:8.1f} ", end="")
    print(f"{micro[-1]:9.0f} {verdict:>16}", flush=True)
    return met


def plot(name: str, times: Sequence[float]) -> None:
    """Print the distribution of a load's decisions over their time, a line an octave."""
    counts = Counter(int(1e6 * took).bit_length() for took in times)
    print(f"\n{name}: decisions by time")
    for octave in range(min(counts), max(counts) + 1):
        bar = "#" * math.ceil(_BAR * counts[octave] / max(counts.values()))
        print(f"{1 << octave >> 1:9} to {(1 << octave) - 1:6} µs {counts[octave]:7} {bar}")
    print()


def ratio(name: str, value: float, goal: float, *, least: bool = False) -> bool:
    """Print a ratio against its goal, an upper limit or with ``least`` a lower one; return whether it is met."""
    met = value >= goal if least else value <= goal
    print(f"{name:70} {value:9.2f}  goal {'>=' if least else '<='} {goal:g} {'met' if met else 'MISSED'}", flush=True)
    return met


def loads(options: argparse.Namespace) -> dict[str, Sequence[float]]:
    chosen = [one for one in LOADS if options.only in one.name]
    rounds: dict[str, list[Sequence[float]]] = {one.name: [] for one in chosen}
    for _ in range(options.rounds):
        for one in chosen:
            rounds[one.name].append(measure(one, options.pods))
    return {name: best(times) for name, times in rounds.items()}


def ratios(found: dict[str, Sequence[float]], options: argparse.Namespace) -> list[bool]:
    met = []
    small, large = (found.get(f"mixed, {nodes} nodes") for nodes in ("1,000", "20,000"))
    if small and large:
        met.append(ratio("cost of a pod at 20,000 nodes over that at 1,000", _mean(large) / _mean(small), 2))
    if (middle := found.get("mixed, 5,000 nodes")) is not None:
        scan = _mean(reference(5_000))
        met.append(ratio("full scan over ours, 5,000 nodes", scan / _mean(middle), 100, least=True))
    if options.only in "flood":
        met += _flood_ratios(options)
    return met


def _flood_ratios(options: argparse.Namespace) -> list[bool]:
    pods = options.pods // 2
    alone, flooded = ([flood(5_000, pods, extra) for _ in range(options.rounds)] for extra in (0, pods))
    own = min(binds for _, binds in flooded) / min(binds for _, binds in alone)
    whole = min(total for total, _ in flooded) / min(total for total, _ in alone)
    return [
        ratio("a bind among as many pods that fit nowhere, over one without them", own, 1.25),
        ratio("all decisions until the last bind, with those pods' own, over without", whole, 2),
    ]


def _mean(times: Sequence[float]) -> float:
    return statistics.mean(times)


def _shapes(pods: int) -> int:
    documents = map(load.mixed_pod, range(pods))
    return len({str((one["metadata"]["annotations"], one["spec"])) for one in documents})


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pods", type=int, default=10_000, help="pods of each load (default 10000)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds, of which the best counts (default 4)")
    parser.add_argument("--only", default="", help="only loads whose name contains this")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, Linux {os.uname().release}, Python {sys.version.split()[0]}; nodes with 4 PFs x 32")
    print(f"VFs, 2 VFs a pod, {_shapes(options.pods)} shapes of pods in the mixed loads; CPU time in µs a pod")
    print(f"{'':26} {'pods':>7} {'pods/s':>9} {'mean':>8} {'p50':>8} {'p99':>8} {'max':>9} {'goal':>16}")
    found = loads(options)
    met = [line(one.name, found[one.name], one.goal) for one in LOADS if one.name in found]
    for name in (name for name in found if "5,000" in name):
        plot(name, found[name])
    return 0 if all([*met, *ratios(found, options)]) else 1


if __name__ == "__main__":
    sys.exit(main())
