"""Time what a decision costs that has to choose whom a pod preempts, in a cluster that is full.

    python -m bench.preemption [--nodes 5000] [--pods 20] [--calls 5]

Every node is full of pods of several priorities. What is timed is `step` of the
machine, in CPU time of its thread, for a pod for whose sake others go, for one that could not be helped, and for one
that is above nobody, which must cost no more than being refused.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Iterator
from random import Random

import msgspec

from bench import scheduler_load as load
from bench.scheduler_load import Json
from mooring import names
from mooring.assignment import AssignedVf, Assignment, dump_assignment
from mooring.inventory import read_inventory
from mooring.kube.events import Changed, Identity
from mooring.parsing import dump
from mooring.settings import VfSettings
from scheduler.instructions import Instruction, Preempt
from scheduler.machine import Machine
from scheduler.objects import Node, Pod, PodDisruptionBudget

# UNIX time of the first decision.
_START = 1_800_000_000.0


class Full:
    """A machine whose nodes have room for nobody."""

    def __init__(self, nodes: int, pods: int, *, budgets: int = 0, vfs: bool = False) -> None:
        """With ``vfs`` it is the rates of the pods' VFs that leave no room, two of each pod; else their cpu."""
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
            self.machine.see(PodDisruptionBudget, Changed(Identity(f"b{number}", "default"), budget), self._now)

    def _show(self, priority: int, spec: Json, cpu: str, annotations: Json) -> None:
        self._serial += 1
        name = f"p{self._serial}"
        if "vfs" in annotations:
            given = Assignment(name, spec["nodeName"], annotations["vfs"])
            annotations = {names.ASSIGNMENT: dump_assignment(given)}
        labels = {"app": f"a{self._serial % 100}"}
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
    ) -> tuple[list[float], int]:
        """Decide about so many such pods; return the milliseconds of each, and for how many others have to go."""
        taken, preempting = list[float](), 0
        for _ in range(calls):
            self._show(priority, spec or {}, cpu, {names.REQUEST: dump(request)} if request else {})
            self._now += 0.001
            began = time.thread_time()
            made: list[Instruction] | None = self.machine.step(self._now)
            taken.append((time.thread_time() - began) * 1000)
            preempting += any(isinstance(one, Preempt) for one in made or ())
        return taken, preempting


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
    """Return what keeps a pod away from others, on its node."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000, help="nodes (default 5000)")
    parser.add_argument("--pods", type=int, default=20, help="pods on each node (default 20)")
    parser.add_argument("--calls", type=int, default=5, help="pods of each sort (default 5)")
    options = parser.parse_args()
    full = Full(options.nodes, options.pods, budgets=20)
    gc.disable()
    print(f"{options.nodes} nodes of {options.pods} pods, 20 budgets")
    print(f"{'pod':44} {'first ms':>9} {'next ms':>8} {'preempt':>8}")
    _print("above nobody", *full.time(options.calls, 0, "2"))
    _print("preempts", *full.time(options.calls, 9, "2"))
    _print("preempts, keeps away from others", *full.time(options.calls, 9, "2", near("a1")))
    _print("could not be helped: larger than any node", *full.time(options.calls, 9, "999"))
    _print("could not be helped: too few below it", *full.time(options.calls, 1, str(options.pods)))
    full = Full(options.nodes, options.pods, budgets=20, vfs=True)
    rate = 360_000 // (2 * options.pods)
    two, twice, most = ([{"min_tx_rate": each}] * 2 for each in (rate, 2 * rate, 85_000))
    _print("above nobody, VFs", *full.time(options.calls, 0, "1m", request=two))
    _print("preempts for VFs", *full.time(options.calls, 9, "1m", request=two))
    _print("preempts for VFs of twice the rate", *full.time(options.calls, 9, "1m", request=twice))
    _print("could not be helped: too few VFs below it", *full.time(options.calls, 1, "1m", request=most * 2))


def _print(name: str, taken: list[float], preempting: int) -> None:
    following = statistics.median(taken[1:] or taken)
    print(f"{name:44} {taken[0]:9.2f} {following:8.2f} {preempting:5}/{len(taken)}")


if __name__ == "__main__":
    main()
