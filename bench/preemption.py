"""Time a decision that has to select victims, in a cluster that is full.

    python -m bench.preemption [--nodes 5000] [--pods 20] [--calls 5]

Every node is full of pods of several priorities. What is timed is `step` of the machine, in CPU time of its thread: all
steps of a decision, and the longest of them, after which other work gets its turn. It is timed for a pod that preempts
others, for one that preemption cannot help, and for one that has no pods of lower priority; finally for a group of
512, each member of which needs half a node, and for one that needs four of five nodes. Exit status 1 if a step takes
too long.
"""

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Iterator
from random import Random

import msgspec

from bench.loads import scheduler_load as load
from bench.loads.scheduler_load import Json
from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.inventory import read_inventory
from mooring.kube.events import Changed, Identity
from mooring.nic.settings import VfSettings
from mooring.parsing import dump
from scheduler.cycle.instructions import DeleteVictims, Instruction
from scheduler.kube.objects import Node, Pod
from scheduler.kube.selecting_objects import PodDisruptionBudget
from scheduler.state.machine import Machine

# UNIX time of the first decision.
_START = 1_800_000_000.0
# The limit of a step, in milliseconds of CPU: nothing else is done meanwhile.
_LONGEST_MS = 50.0


class Full:
    """A machine whose nodes are full."""

    def __init__(self, nodes: int, pods: int, *, budgets: int = 0, vfs: bool = False) -> None:
        """With ``vfs`` the rates of the pods' VFs, two of each pod, fill the nodes; else their cpu does."""
        self.machine, self._random, self._serial, self._now = Machine("mooring"), Random(1), 0, _START
        for number in range(nodes):
            document = load.node(number)
            document["status"]["allocatable"] |= {"cpu": str(pods), "pods": str(pods + 5)}
            one = msgspec.convert(document, Node)
            self.machine.nodes(Changed(Identity(one.metadata.name), one), self._now)
            given = _given(document, pods) if vfs else [{}] * pods
            for annotations in given:
                spec: Json = {"nodeName": one.metadata.name}
                self._show(self._random.randrange(4), spec, "1m" if vfs else "1", annotations)
        for number in range(budgets):
            metadata = {"name": f"b{number}", "namespace": "default"}
            spec = {"selector": {"matchLabels": {"app": f"a{number}"}}}
            budget = msgspec.convert({"metadata": metadata, "spec": spec}, PodDisruptionBudget)
            self.machine.handle(PodDisruptionBudget, Changed(Identity(f"b{number}", "default"), budget), self._now)

    def _show(self, priority: int, spec: Json, cpu: str, annotations: Json, app: int | None = None) -> None:
        self._serial += 1
        name = f"p{self._serial}"
        if "vfs" in annotations:
            given = Assignment(name, spec["nodeName"], annotations["vfs"])
            asked = json.dumps([{"min_tx_rate": vf.min_tx_rate} for vf in given.vfs])
            annotations = {names.ASSIGNMENT: dump_assignment(given), names.REQUEST: asked}
        labels = {"app": f"a{self._serial % 100 if app is None else app}"}
        container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}
        document = {
            "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels}
            | {"annotations": annotations},
            "spec": {"schedulerName": "mooring", "priority": priority, "containers": [container]} | spec,
            "status": {"startTime": f"2027-01-01T00:00:{self._random.randrange(60):02}Z"},
        }
        self.machine.pods(Changed(Identity(name, "default", name), msgspec.convert(document, Pod)), self._now)

    def time(
        self, calls: int, priority: int, cpu: str, spec: Json | None = None, request: object = ()
    ) -> tuple[list[float], float, int]:
        """Decide about so many such pods.

        Return the milliseconds of each, those of the longest step, and how many pods preempt others.
        """
        taken, longest, preempting = list[float](), 0.0, 0
        for _ in range(calls):
            self._show(priority, spec or {}, cpu, {names.REQUEST: dump(request)} if request else {})
            self._now += 0.001
            steps = list(self._steps())
            taken.append(sum(spent for spent, _ in steps))
            longest = max(longest, *(spent for spent, _ in steps))
            preempting += any(isinstance(one, DeleteVictims) for _, made in steps for one in made)
        return taken, longest, preempting

    def time_group(self, members: int, cpu: str) -> tuple[list[float], float, int]:
        """Decide about a group of so many members, as `time` does."""
        group = dump({"name": "train", "min": members})
        for _ in range(members):
            self._show(9, {}, cpu, {names.GROUP: group}, app=1)
        spent, longest, is_preempting = 0.0, 0.0, False
        while not is_preempting:
            began = time.thread_time()
            made = self.machine.step(self._now)
            taken = (time.thread_time() - began) * 1000
            spent, longest = spent + taken, max(longest, taken)
            if made is None:
                break
            is_preempting = any(isinstance(one, DeleteVictims) for one in made)
        return [spent], longest, is_preempting

    def _steps(self) -> Iterator[tuple[float, list[Instruction]]]:
        """Yield the milliseconds and the outcome of each step of a decision."""
        while True:
            began = time.thread_time()
            made = self.machine.step(self._now)
            yield (time.thread_time() - began) * 1000, made or []
            if not self.machine.is_trying:
                return


def _given(document: Json, pods: int) -> Iterator[Json]:
    """Yield two VFs for each pod, whose rates take all that a node's PFs offer."""
    pfs = read_inventory(document["metadata"]["annotations"][names.INVENTORY]).pfs
    rate = sum(pf.offer_mbps for pf in pfs) // (2 * pods)
    for number in range(pods):
        pf, first = pfs[number % len(pfs)], 2 * (number // len(pfs))
        vfs = (
            AssignedVf(pf.name, vf, pf.vf_pci(vf), pf.link, pf.network, VfSettings(min_tx_rate=rate))
            for vf in (first, first + 1)
        )
        yield {"vfs": tuple(vfs)}


def near(app: str) -> Json:
    """Return the anti-affinity that keeps a pod away from others on its node."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000, help="nodes (default 5000)")
    parser.add_argument("--pods", type=int, default=20, help="pods on each node (default 20)")
    parser.add_argument("--calls", type=int, default=5, help="pods of each sort (default 5)")
    options = parser.parse_args()
    gc.disable()
    print(
        f"{options.nodes} nodes of {options.pods} pods, 20 budgets; the goal is that no step takes {_LONGEST_MS:.0f} ms"
    )
    print(f"{'pod':44} {'first ms':>9} {'next ms':>8} {'step ms':>8} {'preempt':>8}")
    size = options.nodes, options.pods, options.calls
    met = [*_for_cpu(*size), *_for_vfs(*size), *_for_group(options.nodes, options.pods)]
    return 0 if all(met) else 1


def _for_cpu(nodes: int, pods: int, calls: int) -> Iterator[bool]:
    full = Full(nodes, pods, budgets=20)
    yield _print("above nobody", *full.time(calls, 0, "2"))
    yield _print("preempts", *full.time(calls, 9, "2"))
    yield _print("preempts, keeps away from others", *full.time(calls, 9, "2", near("a1")))
    yield _print("could not be helped: larger than any node", *full.time(calls, 9, "999"))
    yield _print("could not be helped: too few below it", *full.time(calls, 1, str(pods)))


def _for_vfs(nodes: int, pods: int, calls: int) -> Iterator[bool]:
    full = Full(nodes, pods, budgets=20, vfs=True)
    rate = 360_000 // (2 * pods)
    two, twice, most = ([{"min_tx_rate": each}] * 2 for each in (rate, 2 * rate, 85_000))
    yield _print("above nobody, VFs", *full.time(calls, 0, "1m", request=two))
    yield _print("preempts for VFs", *full.time(calls, 9, "1m", request=two))
    yield _print("preempts for VFs of twice the rate", *full.time(calls, 9, "1m", request=twice))
    yield _print("could not be helped: too few VFs below it", *full.time(calls, 1, "1m", request=most * 2))


def _for_group(nodes: int, pods: int) -> Iterator[bool]:
    full = Full(nodes, pods, budgets=20)
    yield _print("a group of 512 preempts", *full.time_group(512, str(pods // 2)))
    members, few = nodes * 4 // 5, max(pods // 4, 1)
    full = Full(nodes, few, budgets=20)
    yield _print(f"a group of {members} preempts all pods of {few}", *full.time_group(members, str(few)))


def _print(name: str, taken: list[float], longest: float, preempting: int) -> bool:
    """Print a line; return whether no step took too long."""
    following = statistics.median(taken[1:] or taken)
    met = longest <= _LONGEST_MS
    verdict = "met" if met else "MISSED"
    print(f"{name:44} {taken[0]:9.2f} {following:8.2f} {longest:8.2f} {preempting:5}/{len(taken)}  {verdict}")
    return met


if __name__ == "__main__":
    sys.exit(main())
