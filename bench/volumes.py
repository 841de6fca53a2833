"""Time decisions about pods that use volumes; no I/O.

    python -m bench.volumes [--nodes 5000] [--pods 300]

Pods have 2 VFs and a claim each. It is one whose volume is bound and in some zone, the same on nodes that can attach
so many volumes only, one whose volume is to be made, and one for which a disk of some node is to be taken, of which
every node has one. What is timed is `step` of the machine, in CPU time of its thread.
"""

import argparse
import gc
import time
from collections.abc import Callable

from bench.loads import scheduler_load as load
from bench.loads import storage_load as storage
from bench.scheduler import Scheduling, line
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import PreBind

Build = Callable[[storage.Tell, int, int], None]
# Enough that no node is full, few enough that the plugin has to count.
_MOST_ATTACHED = 20


def _bound(tell: storage.Tell, nodes: int, pods: int) -> None:
    storage.bound_claims(tell, pods)


def _limited(tell: storage.Tell, nodes: int, pods: int) -> None:
    storage.limits(tell, nodes, _MOST_ATTACHED)
    storage.bound_claims(tell, pods)


def _made(tell: storage.Tell, nodes: int, pods: int) -> None:
    storage.unbound_claims(tell, pods, "made")


def _local(tell: storage.Tell, nodes: int, pods: int) -> None:
    storage.local_disks(tell, nodes)
    storage.unbound_claims(tell, pods, "local")


def measure(nodes: int, pods: int, claims: str, build: Build) -> list[float]:
    """Return the seconds of each decision; raise ValueError if a pod finds no node."""
    scheduling = Scheduling(nodes)
    tell = storage.teller(scheduling.machine, scheduling.now)
    storage.classes(tell)
    build(tell, nodes, pods)
    scheduling.offer(list(storage.pods(pods, claims)) if claims else [load.mixed_pod(one) for one in range(pods)])
    gc.collect()
    times = []
    for number in range(pods):
        scheduling.now += 0.001
        began = time.thread_time()
        made = scheduling.machine.step(scheduling.now) or []
        times.append(time.thread_time() - began)
        if not any(isinstance(one, Bind | PreBind) for one in made):
            raise ValueError(f"pod {number} with claims {claims!r} found no node: {made}")
    scheduling.machine.check()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000, help="nodes (default 5000)")
    parser.add_argument("--pods", type=int, default=300, help="pods of each load (default 300)")
    options = parser.parse_args()
    print(f"{options.nodes} nodes; CPU time in µs a pod")
    print(f"{'':26} {'pods':>7} {'pods/s':>9} {'mean':>8} {'p50':>8} {'p99':>8} {'max':>9}")
    loads: dict[str, tuple[str, Build]] = {
        "no volume": ("", _bound),
        "bound volume": ("bound", _bound),
        "bound, limits of the node": ("bound", _limited),
        "volume to be made": ("made", _made),
        "a disk of every node": ("local", _local),
    }
    for name, (claims, build) in loads.items():
        line(name, measure(options.nodes, options.pods, claims, build), 0.0)


if __name__ == "__main__":
    main()
