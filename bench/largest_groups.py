"""Measure what groups of the largest size cost others: 64 pods with 64 interfaces that all differ, on shared rails.

    python -m bench.largest_groups [--groups 64] [--nodes 5000] [--equal-nodes]

A pod with one VF comes every quarter of a second of CPU time until all members are bound. Then all pods go, and after
two minutes nothing unused is kept. Printed are the longest wait of such a pod, the longest step, and the memory that
stays. Exit status 1 if a goal is missed. PFs of each node have names and PCI addresses of their own, unless
`--equal-nodes` is given.
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from bench.loads import scheduler_load as load
from bench.loads.scheduler_load import Json
from mooring import names
from mooring.kube.events import Changed, Identity, Removed
from mooring.parsing import dump
from mooring.program.memory import trim_memory
from scheduler.__main__ import spare_collections
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import BOUND
from scheduler.state.machine import Machine

T = TypeVar("T")
_SIZE = 64
_MAX_WAIT_S, _MAX_STEP_MS, _MAX_MIB = 1.0, 50.0, 64.0
# Seconds between two innocent pods, within which all members are bound, and after which nothing unused is kept.
_INTERVAL_S, _END_S, _UNUSED_S = 0.25, 120.0, 120.0


class Cluster:
    """A scheduler's machine; its time is the CPU time that it takes."""

    def __init__(self, nodes: int, *, are_equal: bool) -> None:
        self._machine, self.now, self.longest_s = Machine(names.SCHEDULER_NAME), 0.0, 0.0
        for number in range(nodes):
            node = _node(number, are_equal=are_equal)
            self._machine.nodes(Changed(Identity(node.metadata.name), node), self.now)

    def add(self, pod: Pod) -> None:
        change = Changed(_identity(pod.metadata.name), pod)
        self._time(lambda: self._machine.pods(change, self.now))

    def remove(self, name: str) -> None:
        self._time(lambda: self._machine.pods(Removed(_identity(name)), self.now))

    def step(self) -> list[str]:
        """Return the names of the pods that were bound."""
        instructions = self._time(lambda: self._machine.tick(self.now))
        instructions += self._time(lambda: self._machine.step(self.now) or [])
        binds = [instruction for instruction in instructions if isinstance(instruction, Bind)]
        for bind in binds:
            self._machine.finished(bind, BOUND, self.now)
        return [bind.pod_info.pod.metadata.name for bind in binds]

    def _time(self, call: Callable[[], T]) -> T:
        began = time.thread_time()
        result = call()
        spent = time.thread_time() - began
        self.now, self.longest_s = self.now + spent, max(self.longest_s, spent)
        return result


def _node(number: int, *, are_equal: bool) -> Node:
    document = load.node(number)
    texts = document["metadata"]["annotations"]
    if not are_equal:
        inventory = texts[names.INVENTORY].replace("enp", f"enp{number}p")
        texts[names.INVENTORY] = inventory.replace("0000:", f"{number:04x}:")
    return msgspec.convert(document | {"spec": {}}, Node)


def _member(group: int, number: int) -> Pod:
    interfaces: list[Json] = [{"min_tx_rate": 100 + 7 * index + 3 * group % 50} for index in range(_SIZE)]
    asks = {"name": f"large-{group}", "min": _SIZE, "rails": "same"}
    return _pod(
        f"large-{group}-{number}", interfaces, {names.GROUP: dump(asks)}, f"00:{group // 60:02}:{group % 60:02}"
    )


def _pod(name: str, interfaces: list[Json], annotations: Json, created: str) -> Pod:
    document = load.pod(0, interfaces, "100m", {})
    metadata = document["metadata"]
    metadata |= {"name": name, "uid": name, "creationTimestamp": f"2026-01-01T{created}Z"}
    metadata["annotations"] |= annotations
    return msgspec.convert(document, Pod)


def _identity(name: str) -> Identity:
    return Identity(name, "default", name)


def _memory_mib() -> float:
    """Return the resident memory without what the C library keeps for later; garbage in cycles counts."""
    trim_memory()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True, slots=True)
class Result:
    """How many members were bound within so many seconds, and how long innocent pods waited."""

    bound: int
    spent_s: float
    waits_s: Sequence[float]


def measure(cluster: Cluster, group_count: int) -> Result:
    """Let groups be bound beside innocent pods; then all pods go."""
    member_count, start = group_count * _SIZE, cluster.now
    # The names of all pods: only the scheduler keeps the objects.
    bound, since, waits = set[str](), dict[str, float](), dict[str, float]()
    for group, number in itertools.product(range(group_count), range(_SIZE)):
        cluster.add(_member(group, number))
    while len(bound) < member_count + len(since) and cluster.now - start < _END_S:
        if len(bound) - len(waits) < member_count and cluster.now - start >= len(since) * _INTERVAL_S:
            pod = _pod(f"innocent-{len(since)}", [{"min_tx_rate": 100}], {}, "12:00:00")
            since[pod.metadata.name] = cluster.now
            cluster.add(pod)
        names_bound = cluster.step()
        bound.update(names_bound)
        waits |= {name: cluster.now - since[name] for name in names_bound if name in since}
    result = Result(len(bound) - len(waits), cluster.now - start, [waits.get(name, _END_S) for name in since])
    for name in sorted(bound):
        cluster.remove(name)
    for _ in range(2):
        cluster.now += _UNUSED_S
        cluster.step()
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--groups", type=int, default=64, help="groups of 64 pods (default 64)")
    parser.add_argument("--nodes", type=int, default=5000, help="nodes with 4 PFs of 32 VFs (default 5000)")
    parser.add_argument(
        "--equal-nodes", action="store_true", help="give the PFs of all nodes equal names and addresses"
    )
    options = parser.parse_args()
    spare_collections()
    cluster = Cluster(options.nodes, are_equal=options.equal_nodes)
    memory_mib = _memory_mib()
    result = measure(cluster, options.groups)
    stays_mib, wait_s = _memory_mib() - memory_mib, max(result.waits_s, default=0.0)
    step_ms, members = cluster.longest_s * 1000, options.groups * _SIZE
    met = result.bound == members and wait_s < _MAX_WAIT_S and step_ms <= _MAX_STEP_MS and stays_mib <= _MAX_MIB
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}; in brackets: goals")
    print(f"{result.bound} members bound ({members}) in {result.spent_s:.1f} s of CPU time")
    print(f"longest wait of {len(result.waits_s)} innocent pods: {wait_s:.3f} s ({_MAX_WAIT_S:.0f})")
    print(f"longest step: {step_ms:.1f} ms ({_MAX_STEP_MS:.0f})")
    print(f"memory that stays: {stays_mib:.0f} MiB ({_MAX_MIB:.0f})")
    print("met" if met else "MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
