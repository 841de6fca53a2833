"""A synthetic day in virtual time: how long jobs wait with `--backfill`, with `--group-hold`, and with neither.

    python -m bench.reservations [--hours 24] [--nodes 16] [--seed 1] [--svg FILE]

Jobs come at random: most are small and short, one in ten wants at least a quarter of the nodes. Each runs exactly as
long as it declares. The scheduler's machine decides; nothing is measured but virtual time, so equal arguments give
equal results. Printed: the waits of the largest tenth and of all jobs, the share of VFs in use, and the hours of VFs
that were reserved and used by nobody. With ``--svg`` the first hours with `--backfill` are drawn. Exit status 1 if a
promise is broken.
"""

import argparse
import heapq
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import msgspec

from bench.loads import scheduler_load as load
from mooring import names
from mooring.annotations.inventory import Inventory, Pf, dump_inventory
from mooring.indexes import Indexes
from mooring.kube.events import Changed, Identity, Removed
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import BOUND
from scheduler.pending.groups.pending_groups import GroupOptions
from scheduler.state.machine import Machine

_VFS, _HOUR_S, _SHORTEST_S, _HOLD_S = 2, 3600.0, 300.0, 600.0
_KINDS = {
    "--backfill": GroupOptions(backfill=True),
    "--group-hold 600": GroupOptions(hold_s=_HOLD_S),
    "neither": GroupOptions(),
}


_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{height}" viewBox="0 0 720 {height}" role="img">
<title>Nodes over time: large jobs, small jobs that fill the room before them, and promised starts</title>
<style>.bg{{fill:#ffffff}} .s{{font:12px system-ui,sans-serif;fill:#57606a}} .b{{fill:#c9d3dc}} .p{{fill:#2f6f9f}}
.m{{stroke:#c4432b;stroke-width:2;stroke-dasharray:4 3}}
@media (prefers-color-scheme: dark){{.bg{{fill:#1c2128}} .s{{fill:#a9b4bf}} .b{{fill:#57606a}} .p{{fill:#6fb1e0}}}}
</style>
<rect class="bg" width="720" height="{height}" rx="6"/>"""


@dataclass(frozen=True, slots=True)
class Job:
    """A job of so many members, each of which takes a node's VFs."""

    name: str
    at: float
    size: int
    runs_s: float


@dataclass
class Day:
    """One run: when each job started, and who was on each node from when until when."""

    starts: dict[str, float] = field(default_factory=dict)
    bars: list[tuple[str, str, float, float]] = field(default_factory=list)
    promises: dict[str, float] = field(default_factory=dict)
    reserved_vf_s: float = 0.0


def jobs(random: Random, hours: float, nodes: int) -> list[Job]:
    """Return jobs that together need about nine tenths of the cluster."""
    made, now, number = list[Job](), 0.0, 0
    while now < hours * _HOUR_S:
        is_large = number % 10 == 9
        size = random.randint(nodes // 4, nodes // 2 + nodes // 4) if is_large else random.randint(1, 2)
        runs_s = float(random.randrange(6, 24) if is_large else random.randrange(1, 18)) * _SHORTEST_S
        made.append(Job(f"j{number}", now, size, runs_s))
        now += random.expovariate(0.9 * nodes / (size * runs_s))
        number += 1
    return made


def run(all_jobs: list[Job], nodes: int, options: GroupOptions) -> Day:
    """Return what became of the jobs."""
    machine, day = Machine("mooring", group_options=options), Day()
    for number in range(nodes):
        machine.nodes(Changed(Identity(load.node_name(number)), msgspec.convert(_node(number), Node)), 0.0)
    by_name, events = {job.name: job for job in all_jobs}, list[tuple[float, int, str, Any]]()
    for number, job in enumerate(all_jobs):
        heapq.heappush(events, (job.at, number, "arrive", job))
    serial, now = len(all_jobs), 0.0
    while events:
        due = min(events[0][0], machine.next_due() or events[0][0])
        due = max(due, now + 1.0) if due < events[0][0] else due
        day.reserved_vf_s += (due - now) * _idle_reserved(machine, due)
        now = due
        while events and events[0][0] <= now:
            _, _, kind, about = heapq.heappop(events)
            for pod in _pods(about) if kind == "arrive" else ():
                machine.pods(Changed(_identity(pod), pod), now)
            if kind == "end":
                machine.pods(Removed(_identity(about)), now)
        for bind in _decide(machine, now):
            job = by_name[bind.pod_info.pod.metadata.name.rpartition("-")[0]]
            day.starts.setdefault(job.name, now)
            day.bars.append((job.name, bind.assigned.node, now, now + job.runs_s))
            serial += 1
            heapq.heappush(events, (now + job.runs_s, serial, "end", _run(machine, bind, now)))
        _note_promise(machine, day)
    return day


def _note_promise(machine: Machine, day: Day) -> None:
    key = machine.pending_groups.room_owner
    reservation = machine.reservations.of_owner(key) if key is not None else None
    if key is not None and reservation is not None and reservation.cause == "backfill":
        day.promises.setdefault(key.name, reservation.since)


def _idle_reserved(machine: Machine, now: float) -> int:
    """Return how many VFs are reserved now and used by nobody."""
    reservations = [one for one in machine.reservations.all() if one.since <= now]
    nodes = {room.node for one in reservations for room in one.rooms.values()}
    return sum(_VFS for node in nodes if not machine.cache.assigned_pods_on(node))


def _decide(machine: Machine, now: float) -> Iterator[Bind]:
    found = machine.tick(now)
    while (instructions := machine.step(now)) is not None:
        found += instructions
    yield from (one for one in (*found, *machine.tick(now)) if isinstance(one, Bind))


def _run(machine: Machine, bind: Bind, now: float) -> Pod:
    """Let a pod be bound and Running."""
    document = msgspec.to_builtins(bind.pod_info.pod)
    document["spec"]["nodeName"] = bind.assigned.node
    document["metadata"]["annotations"] |= bind.annotations
    document["status"] = {"phase": "Running"}
    machine.finished(bind, BOUND, now)
    pod = msgspec.convert(document, Pod)
    machine.pods(Changed(_identity(pod), pod), now)
    return pod


def _node(number: int) -> Any:
    """Return a node with one PF of `_VFS` VFs."""
    document = load.node(number)
    pf = Pf(
        name="pf0",
        pci="0000:01:00.0",
        rdma="mlx5_0",
        link="ethernet",
        network="rail0",
        mbps=100_000,
        offer_mbps=100_000,
        up=True,
        vfs=Indexes.of(range(_VFS)),
        vf0="0000:01:00.2",
        can=frozenset(),
    )
    document["metadata"]["annotations"][names.INVENTORY] = dump_inventory(Inventory(load.BOOT, (pf,)))
    return document | {"spec": {}}


def _pods(job: Job) -> Iterator[Pod]:
    group = f'{{"name":"{job.name}","min":{job.size},"runs":"{int(job.runs_s)}s"}}'
    for rank in range(job.size):
        name = f"{job.name}-{rank}"
        annotations = {names.REQUEST: "[{},{}]", names.GROUP: group}
        metadata = {"name": name, "namespace": "default", "uid": name, "annotations": annotations}
        metadata["creationTimestamp"] = f"2026-01-01T00:00:00.{int(job.at):06}Z"
        yield msgspec.convert({"metadata": metadata, "spec": {"schedulerName": "mooring"}}, Pod)


def _identity(pod: Pod) -> Identity:
    return Identity(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)


def report(all_jobs: list[Job], day: Day, nodes: int, hours: float) -> str:
    waits = {job.name: day.starts[job.name] - job.at for job in all_jobs if job.name in day.starts}
    largest = sorted(all_jobs, key=lambda job: -job.size)[: max(len(all_jobs) // 10, 1)]
    large_waits = [waits.get(job.name, hours * _HOUR_S) for job in largest]
    end = hours * _HOUR_S
    used = sum(max(min(stop, end) - start, 0.0) for _, _, start, stop in day.bars) / (nodes * end)
    return (
        f"{mean(large_waits) / 60:8.0f} {max(large_waits) / 60:8.0f} {mean(waits.values()) / 60:8.1f} {used:8.0%} "
        f"{day.reserved_vf_s / _HOUR_S:8.1f} {len(day.promises):8}"
    )


def draw(day: Day, all_jobs: list[Job], hours: float = 8.0) -> str:
    """Return a timeline of the first hours: a row for each node, large jobs in colour, and their promised starts."""
    names_of_nodes = sorted({node for _, node, _, _ in day.bars})
    large = {job.name for job in sorted(all_jobs, key=lambda job: -job.size)[: max(len(all_jobs) // 10, 1)]}
    scale, top, left = 640 / (hours * _HOUR_S), 24, 64
    lines = [_HEAD.format(height=top + 18 * len(names_of_nodes) + 34)]
    for row, node in enumerate(names_of_nodes):
        lines.append(f'<text class="s" x="8" y="{top + 18 * row + 13}">{node.removeprefix("node-000")}</text>')
    for name, node, start, stop in day.bars:
        stop = min(stop, hours * _HOUR_S)
        if start < stop:
            kind, y = "p" if name in large else "b", top + 18 * names_of_nodes.index(node) + 2
            x, width = left + start * scale, max((stop - start) * scale - 1.0, 1.0)
            lines.append(f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="14"/>')
    bottom = top + 18 * len(names_of_nodes)
    for promise in day.promises.values():
        if promise < hours * _HOUR_S:
            x = left + promise * scale
            lines.append(f'<path class="m" d="M{x:.1f} {top - 4} V{bottom}"/>')
    for hour in range(int(hours) + 1):
        x = left + hour * _HOUR_S * scale
        lines.append(f'<text class="s" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{hour} h</text>')
    return "\n".join([*lines, "</svg>\n"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--svg", default="")
    arguments = parser.parse_args()
    all_jobs = jobs(Random(arguments.seed), arguments.hours, arguments.nodes)
    print(f"{len(all_jobs)} jobs on {arguments.nodes} nodes")
    print(f"{'':18} {'large':>8} {'longest':>8} {'all':>8} {'in use':>8} {'idle':>8} {'promises':>8}")
    late = 0
    for name, options in _KINDS.items():
        day = run(all_jobs, arguments.nodes, options)
        print(f"{name:18} {report(all_jobs, day, arguments.nodes, arguments.hours)}")
        late += sum(day.starts.get(job, 1e12) > promise + 1.0 for job, promise in day.promises.items())
        if options.backfill and arguments.svg:
            Path(arguments.svg).write_text(draw(day, all_jobs))
    print(
        "minutes that the largest tenth waits (mean, longest) and all jobs (mean); VFs in use; idle reserved VF hours"
    )
    print(f"promises that were broken: {late}")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
