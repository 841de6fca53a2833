"""Time decisions about groups of pods that start together.

    python -m bench.groups [--members 2048] [--rounds 3] [--only TEXT]

What is timed is `step` of the machine, in CPU time of its thread, until nothing is left to decide: members decided a
second, and the longest step, after which other work gets its turn. Racks have 16 nodes and leaves 4. Two lines give
clusters room for some of the groups only: no other may have a member bound. In the last two, other pods come and go, at
so many a second of this CPU time, until the group is bound; what they cost counts. Exit status 1 if a goal is missed.
"""

import argparse
import gc
import itertools
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from bench.loads import scheduler_load as load
from bench.loads.scheduler_load import Json
from mooring import names
from mooring.kube.events import Changed, Identity, Removed
from mooring.parsing import dump
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import BOUND
from scheduler.state.machine import Machine

_NOW = 1_800_000_000.0
_RACK, _LEAF = "example.com/rack", "example.com/leaf"
_IN_A_RACK: Json = {"within": _RACK, "prefer": [_LEAF]}
# Members a second, and milliseconds of a step.
_GOAL, _LONGEST_MS = 3000, 50.0
_TWO: Sequence[Json] = ({"min_tx_rate": 1000}, {"min_tx_rate": 500})
_EIGHT: Sequence[Json] = ({"min_tx_rate": 1000},) * 8


@dataclass(frozen=True, slots=True)
class Load:
    """Groups of ``size`` equal members, or with ``shapes`` of so many; ``count`` of them, None: by ``--members``."""

    name: str
    nodes: int
    size: int
    asks: Json
    interfaces: Sequence[Json] = _TWO
    count: int | None = None
    cpu: str = "250m"
    shapes: int = 1
    # Whether the PFs of each node have names and PCI addresses that no other node's have.
    is_mixed: bool = False
    # Seconds that all may take.
    most_s: float | None = None
    # How many groups there is room for; None for all.
    fitting: int | None = None
    # How many other pods come in a second, each for half a second; and whether the members must be apart from them.
    others: int = 0
    is_apart: bool = False


LOADS = (
    *(Load(f"{size} members, 1,000 nodes", 1000, size, {}) for size in (4, 16, 64, 512)),
    Load("512 members, two groups at once", 1000, 512, {}, count=2),
    Load("64 members of 8 shapes, 1,000 nodes", 1000, 64, {}, shapes=8),
    Load("64 members, rails same, 1,000 nodes", 1000, 64, {"rails": "same"}),
    Load("64 members, rails index, 1,000 nodes", 1000, 64, {"rails": "index"}),
    Load("64 members, rails same, 5,000 unlike nodes", 5000, 64, {"rails": "same"}, is_mixed=True),
    Load("8 members in a rack, 5,000 nodes", 5000, 8, _IN_A_RACK),
    Load("64 members in a rack, 5,000 nodes", 5000, 64, _IN_A_RACK),
    Load("64 in a rack, rails same, 5,000 nodes", 5000, 64, _IN_A_RACK | {"rails": "same"}),
    Load("512 members of 8 VFs, 1,000 nodes", 1000, 512, {}, _EIGHT, count=1, most_s=1.0),
    Load("4,096 members, 5,000 nodes", 5000, 4096, {}, count=1),
    Load("4,096 members apart, 5,000 nodes", 5000, 4096, {}, count=1, most_s=4.0, is_apart=True),
    Load("room for 5 of 12 groups of 16", 21, 16, {}, count=12, cpu="15", fitting=5),
    Load("room for 1 of 12 groups of 12, in a rack", 20, 12, _IN_A_RACK, count=12, cpu="60", fitting=1),
    Load("512 members beside 300 pods a second, 5,000", 5000, 512, {}, count=1, most_s=2.0, others=300),
    Load("64 apart, beside 500 pods a second, 5,000", 5000, 64, {}, count=1, most_s=2.0, others=500, is_apart=True),
)
_LABELS = {"app": "train"}
_APART: Json = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": _LABELS}}
_STAYS_S = 0.5


@dataclass(frozen=True, slots=True)
class Result:
    """CPU seconds of all steps, milliseconds of the longest, and how many members of each group were bound."""

    spent_s: float
    longest_ms: float
    bound: Counter[str]


def measure(load_: Load, count: int) -> Result:
    """Decide about so many groups in a new cluster."""
    machine = Machine(names.SCHEDULER_NAME)
    for number in range(load_.nodes):
        machine.nodes(Changed(Identity(load.node_name(number)), _node(load_, number)), _NOW)
    for group, member in itertools.product(range(count), range(load_.size)):
        pod = _member(load_, group, member)
        machine.pods(Changed(_identity(pod), pod), _NOW)
    spent, longest, bound, others = 0.0, 0.0, Counter[str](), _Others(machine, load_)
    while True:
        began = time.thread_time()
        others.come_and_go(spent)
        stepped = time.thread_time()
        made = machine.step(_NOW + spent if load_.others else _NOW)
        ended = time.thread_time()
        spent, longest = spent + ended - began, max(longest, ended - stepped)
        binds = [one for one in made or () if isinstance(one, Bind)]
        others.bound(binds, spent)
        bound.update(one.pod_info.pod.metadata.name.rpartition("-")[0] for one in binds if one.pod_info.pod.annotations)
        if bound.total() == count * load_.size if load_.others else made is None:
            return Result(spent, longest * 1000, bound)


class _Others:
    """Pods beside the groups, which come at a rate, are bound, and go after a while."""

    def __init__(self, machine: Machine, load_: Load) -> None:
        self._machine, self._load = machine, load_
        self._came = 0
        self._going = deque[tuple[float, Pod]]()

    def come_and_go(self, now: float) -> None:
        """Show the pods that have come, or gone, until now."""
        while self._came < self._load.others * now:
            self._came += 1
            document = load.pod(self._came, [], "100m", {}, _LABELS)
            document["metadata"] |= {"uid": f"other-{self._came}", "annotations": {}}
            self._show(msgspec.convert(document, Pod), now)
        while self._going and self._going[0][0] <= now:
            _, pod = self._going.popleft()
            self._machine.pods(Removed(_identity(pod)), _NOW + now)

    def bound(self, binds: Sequence[Bind], now: float) -> None:
        """Let Bindings succeed, and the watch show them."""
        for bind in binds if self._load.others else ():
            self._machine.finished(bind, BOUND, _NOW + now)
            document = msgspec.to_builtins(bind.pod_info.pod)
            document["spec"]["nodeName"] = bind.assigned.node
            document["metadata"]["annotations"] |= bind.annotations
            pod = msgspec.convert(document, Pod)
            self._show(pod, now)
            if not bind.pod_info.interfaces:
                self._going.append((now + _STAYS_S, pod))

    def _show(self, pod: Pod, now: float) -> None:
        self._machine.pods(Changed(_identity(pod), pod), _NOW + now)


def _identity(pod: Pod) -> Identity:
    return Identity(pod.metadata.name, "default", pod.metadata.uid)


def _node(load_: Load, number: int) -> Node:
    document = load.node(number)
    if load_.is_mixed:
        texts = document["metadata"]["annotations"]
        pci = f"{number:04x}:"
        texts[names.INVENTORY] = texts[names.INVENTORY].replace("enp", f"enp{number}p").replace("0000:", pci)
    document["metadata"]["labels"] |= {_RACK: f"rack-{number // 16}", _LEAF: f"leaf-{number // 4}"}
    document["spec"] = {}
    return msgspec.convert(document, Node)


def _member(load_: Load, group: int, member: int) -> Pod:
    asks = {"name": f"train-{group}", "min": load_.size, **load_.asks}
    own = [one | {"min_tx_rate": one["min_tx_rate"] + 100 * (member % load_.shapes)} for one in load_.interfaces]
    apart: Json = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_APART]}}
    labels = _LABELS if load_.is_apart or load_.others else {}
    document = load.pod(0, [], load_.cpu, {"affinity": apart} if load_.is_apart else {}, labels)
    annotations = {names.REQUEST: dump(own), names.GROUP: dump(asks)}
    created = f"2026-01-01T{group // 3600:02}:{group // 60 % 60:02}:{group % 60:02}Z"
    metadata = {"name": f"train-{group}-{member}", "uid": f"{group}-{member}", "creationTimestamp": created}
    return msgspec.convert(document | {"metadata": document["metadata"] | metadata | {"annotations": annotations}}, Pod)


def line(load_: Load, count: int, results: Sequence[Result]) -> bool:
    """Print the best of the rounds; return whether the goals are met."""
    spent = min(one.spent_s for one in results)
    longest = min(one.longest_ms for one in results)
    bound, members = results[0].bound, count * load_.size
    whole = sum(1 for number in bound.values() if number == load_.size)
    met = longest <= _LONGEST_MS and whole == len(bound) == (count if load_.fitting is None else load_.fitting)
    met &= spent <= load_.most_s if load_.most_s is not None else members / spent >= _GOAL
    figures = f"{members:8} {spent:7.3f} {members / spent:9,.0f} {longest:8.1f} {whole:6} {len(bound) - whole:5}"
    print(f"{load_.name:42} {figures}  {'met' if met else 'MISSED'}", flush=True)
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--members", type=int, default=2048, help="members of each load, in groups (default 2048)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the best counts (default 3)")
    parser.add_argument("--only", default="", help="only loads whose name contains this")
    options = parser.parse_args()
    gc.disable()
    print(f"{os.cpu_count()} cores, Linux {os.uname().release}, Python {sys.version.split()[0]}; nodes with 4 PFs x 32")
    print(f"VFs, 2 VFs a member; goals: {_GOAL:,} members decided a second, no step over {_LONGEST_MS:.0f} ms")
    print(f"{'':42} {'members':>8} {'CPU s':>7} {'a second':>9} {'step ms':>8} {'whole':>6} {'part':>5}")
    met = []
    for one in LOADS:
        if options.only in one.name:
            count = one.count or max(options.members // one.size, 1)
            met.append(line(one, count, [measure(one, count) for _ in range(options.rounds)]))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
