"""Time what one object of the largest size costs the scheduler, for each kind that it watches and each field of it.

    python -m bench.hostile_objects [--only TEXT] [--nodes 1000] [--bytes 1572864] [--all]

Each object is decoded, taken in, decided about if it is a pod, changed, and deleted; beside it an ordinary pod is
scheduled. Printed are the objects for which one step took over 50 ms of the thread's CPU time, with the longest step
and, for comparison, what the standard library takes to decode the same JSON; with ``--all`` every object.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from bench.loads.largest_objects import LARGEST, Filled, Json, largest
from mooring.annotations.inventory import Inventory, Pf, dump_inventory
from mooring.indexes import Indexes
from mooring.kube.events import Identity, Removed
from mooring.kube.watch import Decoder, WatchLine, read_line
from scheduler.__main__ import spare_collections
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Report
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import BOUND
from scheduler.kube.selecting_objects import Service
from scheduler.server.reports import status_patch
from scheduler.server.watches import SOURCES
from scheduler.server.writes import binding
from scheduler.state.machine import Machine

T = TypeVar("T")
MOST_S = 0.05
BOOT, _NOW = "boot-1", "2026-01-01T00:00:00Z"
_DECODERS: dict[type[Any], Decoder[Any]] = {kind: Decoder(kind) for kind in SOURCES}
# Far more steps than a decision takes.
_MOST_STEPS = 1000


def _pf(index: int) -> Pf:
    return Pf(
        name=f"pf{index}",
        pci=f"0000:{index + 4:02x}:00.0",
        link="ethernet",
        network="rail0",
        mbps=100_000,
        offer_mbps=90_000,
        up=True,
        vfs=Indexes.of(range(16)),
        vf0=f"0000:{index + 4:02x}:00.2",
        can=frozenset({"min_tx_rate"}),
    )


def node(name: str) -> Json:
    """Return a node with two PFs."""
    pfs = tuple(_pf(index) for index in range(2))
    inventory = dump_inventory(Inventory(BOOT, pfs))
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"z{len(name) % 3}"}
    metadata = {"name": name, "uid": f"u-{name}", "resourceVersion": "1", "labels": labels}
    return {
        "metadata": metadata | {"annotations": {"mooring.dev/inventory": inventory}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": BOOT},
        },
    }


def pod(name: str, node_name: str = "", scheduler: str = "mooring") -> Json:
    """Return a pod with one VF, or without if it is bound."""
    request = {} if node_name else {"mooring.dev/interfaces": '[{"min_tx_rate":100}]'}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {
        "metadata": metadata | {"creationTimestamp": _NOW, "annotations": request, "labels": {"app": "a"}},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "c", "image": "i"}],
            **({"nodeName": node_name} if node_name else {}),
        },
        "status": {},
    }


def roles() -> dict[str, tuple[type[Any], Json]]:
    """Return by name each kind of object that may be hostile, with an ordinary one of it."""
    metadata = {"name": "o", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    others = {kind.__name__: (kind, {"metadata": metadata}) for kind in SOURCES if kind not in (Node, Pod)}
    return {
        "Node": (Node, node("hostile")),
        "Pod, pending": (Pod, pod("hostile")),
        "Pod, bound": (Pod, pod("hostile", "n1")),
        "Pod of another scheduler": (Pod, pod("hostile", scheduler="other")),
        **others,
    }


class Cluster:
    """A scheduler's machine with some nodes and a pod on each; ``steps_s`` has the CPU time of each step, by name."""

    def __init__(self, nodes: int) -> None:
        self.machine = Machine("mooring")
        self.steps_s: list[tuple[float, str]] = []
        self._now, self._bound = 1000.0, 0
        for number in range(nodes):
            self.see(Node, node(f"n{number}"))
            apart = {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": f"x{number % 5}"}},
            }
            bound = pod(f"b{number}", f"n{number}")
            required = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
            bound["spec"]["affinity"] = {"podAntiAffinity": required}
            self.see(Pod, bound)
        metadata = {"name": "s", "namespace": "default", "resourceVersion": "1"}
        self.see(Service, {"metadata": metadata, "spec": {"selector": {"app": "a"}}})

    def live_through(
        self, kind: type[Any], filled: Filled, versions: tuple[int, int] = (0, 1), size: int = LARGEST
    ) -> None:
        """Let an object come, change and go, and an ordinary pod be scheduled beside it."""
        identities = []
        for number, version in enumerate(versions, 1):
            document = filled.document(version, size)
            document["metadata"] = document["metadata"] | {"resourceVersion": f"{number}"}
            identities.append(self.see(kind, document))
            self.settle()
            beside = self.see(Pod, pod("beside"))
            self.settle()
            self._timed("remove", lambda gone=beside: self.machine.handle(Pod, Removed(gone), self._now))  # type: ignore[misc]
        for identity in dict.fromkeys(identities):
            self._timed("remove", lambda gone=identity: self.machine.handle(kind, Removed(gone), self._now))  # type: ignore[misc]
        self.settle()

    def see(self, kind: type[Any], document: Json) -> Identity:
        """Take in an object as the API server sends it."""
        text = msgspec.json.encode({"type": "MODIFIED", "object": document})
        line = self._timed("decode", lambda: read_line(text, _DECODERS[kind]))
        assert isinstance(line, WatchLine), line
        event: Any = line.event
        self._follow(self._timed("take in", lambda: self.machine.handle(kind, event, self._now)))
        identity: Identity = event.identity
        return identity

    def settle(self) -> None:
        """Decide until nothing is left to decide."""
        for _ in range(_MOST_STEPS):
            self._now += 0.001
            self._follow(self._timed("tick", lambda: self.machine.tick(self._now)))
            found = self._timed("decide", lambda: self.machine.step(self._now))
            if found is None:
                return
            self._follow(found)
        raise AssertionError(f"{_MOST_STEPS} steps did not come to an end")

    def _follow(self, instructions: list[Instruction]) -> None:
        for one in instructions:
            if isinstance(one, Bind):
                self._timed("write", lambda bind=one: binding(bind))  # type: ignore[misc]
                self._follow(self._timed("bound", lambda bind=one: self.machine.finished(bind, BOUND, self._now)))  # type: ignore[misc]
            elif isinstance(one, Report):
                self._timed("write", lambda report=one: status_patch(report, _NOW))  # type: ignore[misc]

    def _timed(self, name: str, step: Callable[[], T]) -> T:
        began = time.thread_time()
        try:
            return step()
        finally:
            self.steps_s.append((time.thread_time() - began, name))


def decoding_s(document: Json) -> float:
    """Return the CPU time, in seconds, that the standard library takes to decode a document, the best of three."""
    text, took = json.dumps(document), list[float]()
    for _ in range(3):
        began = time.thread_time()
        json.loads(text)
        took.append(time.thread_time() - began)
    return min(took)


def cases(only: str = "") -> Iterator[tuple[str, type[Any], Filled]]:
    """Yield the role, the kind and the object with one field filled, for those whose name contains a text."""
    for role, (kind, base) in roles().items():
        for filled in largest(kind, base):
            if only in f"{role} {filled.name}":
                yield role, kind, filled


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="only objects whose role and field contain this")
    parser.add_argument("--nodes", type=int, default=1000, help="of the cluster (default 1000)")
    parser.add_argument("--bytes", type=int, default=LARGEST, help=f"of each object's JSON (default {LARGEST})")
    parser.add_argument("--all", action="store_true", help="print every object")
    options = parser.parse_args()
    # As the program does.
    spare_collections()
    cluster, longest, count = Cluster(options.nodes), 0.0, 0
    gc.freeze()
    print(f"{'ms':>6} {'step':8} {'json':>5}  object", flush=True)
    for role, kind, filled in cases(options.only):
        cluster.steps_s.clear()
        cluster.live_through(kind, filled, size=options.bytes)
        took, step = max(cluster.steps_s)
        longest, count = max(longest, took), count + 1
        if took > MOST_S or options.all:
            plain = decoding_s(filled.document(0, options.bytes))
            print(f"{took * 1000:6.0f} {step:8} {plain * 1000:5.0f}  {role}: {filled.name}", flush=True)
    print(
        f"{count} objects of {options.bytes} bytes at {options.nodes} nodes; the longest step {longest * 1000:.0f} ms"
    )


if __name__ == "__main__":
    main()
