"""Measure the scheduler end to end over HTTPS: CPU of its process a bound pod, and pods/s; a line a run.

    python -m bench.scheduler_e2e [--nodes 1000] [--pods 3000] [--rounds 2]

Against devcluster's API server, and against a real one where KUBECONFIG names one or KUBEBUILDER_ASSETS a folder with
etcd and kube-apiserver. A kube-scheduler in that folder takes turns on the same cluster: see `bench.served.baselines`.
Pods are created beforehand. A process's CPU (user and system) counts from its start to its rest, less what it takes to
start on the same cluster without pods. "VFs" are those that pods were given by name, no two the same. "binds alone" is
the rate at which the server takes ready-made Bindings, 128 at once, from one client that decides nothing: about what
the server allows, and no bound, since other work on the machine slows each run differently. Exit status 1 if a goal is
missed.
"""

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.advertiser import cpu_s
from bench.loads import scheduler_load as load
from bench.served import apiservers, served_cluster
from bench.served import baselines as baselines
from bench.served.baselines import MeasuredScheduler
from devcluster.processes import Processes
from mooring.kube.access import load_access
from mooring.kube.client import Client

ALONE = "binds alone"
_BIND_MICROS, _EVENT_MICROS, _TIMES_KUBE = 450, 700, 3
_WIDTH = 24
# A process that takes less than this many seconds of CPU in a second is at rest.
_REST_CPU_S, _REST_S, _LONGEST_S = 0.03, 1.0, 120.0


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run: binds a second; of a scheduler CPU µs a pod, the Events it left and the VFs it named."""

    name: str
    rate: float
    micros: float = 0.0
    events: int = 0
    vfs: int = 0


@contextmanager
def running(measured: MeasuredScheduler, folder: Path) -> Iterator[int]:
    processes = Processes(folder / "logs")
    try:
        processes.start(measured.slug, measured.command)
        yield processes.pid(measured.slug)
    finally:
        processes.stop()


async def at_rest(pid: int) -> float:
    """Wait until a process is at rest; return the seconds of CPU that it has used."""
    deadline, spent = time.monotonic() + _LONGEST_S, -1.0
    while (now := cpu_s(pid)) - spent >= _REST_CPU_S or now < _REST_CPU_S:
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} is not at rest after {_LONGEST_S:.0f} s")
        spent = now
        await asyncio.sleep(_REST_S)
    return now


async def weigh(client: Client, measured: MeasuredScheduler, nodes: int, pods: int, folder: Path) -> Run:
    """Let a scheduler bind all pods of an otherwise empty cluster."""
    await served_cluster.clear(client)
    async with measured.stage(client, nodes, pods):
        with running(measured, folder) as pid:
            start_s = await at_rest(pid)
        await served_cluster.add_pods(client, map(measured.pod, range(pods)))
        async with served_cluster.watching_binds(client) as binds:
            with running(measured, folder) as pid:
                await binds.reach(pods)
                spent_s = await at_rest(pid)
        vfs = _unlike(await measured.named(client), pods * load.VFS_A_POD) if measured.named else 0
        events = await served_cluster.count_events(client)
        await served_cluster.clear(client)
    return Run(measured.name, binds.rate, 1e6 * (spent_s - start_s) / pods, events, vfs)


def _unlike(found: Sequence[str], wanted: int) -> int:
    """Return how many VFs were given by name; raise ValueError if one is missing or given twice."""
    if len(found) != wanted or len(set(found)) != wanted:
        raise ValueError(f"{wanted} VFs were to be given, found {len(found)}, {len(set(found))} of them unlike")
    return wanted


async def alone(client: Client, pods: int) -> Run:
    """Bind pods without a scheduler."""
    await served_cluster.clear(client)
    await served_cluster.add_pods(client, map(load.mixed_pod, range(pods)))
    return Run(ALONE, await served_cluster.bind_all(client))


async def measure(
    kubeconfig: Path, folder: Path, kube_scheduler: Path | None, options: argparse.Namespace
) -> list[Run]:
    schedulers = baselines.ours(kubeconfig) + (
        baselines.kube_schedulers(kube_scheduler, kubeconfig, folder) if kube_scheduler else []
    )
    runs = []
    async with Client(load_access(str(kubeconfig)), connections=served_cluster.BINDS_AT_ONCE) as client:
        await served_cluster.add_nodes(client, map(load.node, range(options.nodes)))
        for _ in range(options.rounds):
            for measured in schedulers:
                pods = int(options.pods * measured.share)
                runs.append(await weigh(client, measured, options.nodes, pods, folder))
                _print(runs[-1])
            runs.append(await alone(client, options.pods))
            _print(runs[-1])
    return runs


def _print(run: Run) -> None:
    counts = f"{run.micros:12.0f} {run.events:9} {run.vfs:9}" if run.micros else " " * 32
    print(f"  {run.name:{_WIDTH}} {run.rate:9.0f} {counts} {os.getloadavg()[0]:9.1f}", flush=True)


def summary(runs: Sequence[Run]) -> None:
    """Print each scheduler's best and median rate, and ours with Events over both."""
    ours = _rates(runs, baselines.SPEAKING)
    print(f"  {'pods/s':{_WIDTH}} {'best':>9} {'median':>9}   {baselines.SPEAKING!r} over it, best and median")
    for name in dict.fromkeys(run.name for run in runs):
        rates = _rates(runs, name)
        pairs = [(max(ours), max(rates)), (statistics.median(ours), statistics.median(rates))]
        ratios = " ".join(f"{mine / its:9.2f}" for mine, its in pairs)
        print(f"  {name:{_WIDTH}} {pairs[0][1]:9.0f} {pairs[1][1]:9.0f}   {ratios}", flush=True)


def _rates(runs: Sequence[Run], name: str) -> list[float]:
    return [run.rate for run in runs if run.name == name]


def verdicts(runs: Sequence[Run], pods: int) -> list[bool]:
    """Print each goal with the best of the rounds; return which are met."""
    met = []
    for name, goal in ((baselines.SILENT, _BIND_MICROS), (baselines.SPEAKING, _EVENT_MICROS)):
        found = min(run.micros for run in runs if run.name == name)
        met.append(_verdict(f"CPU a bound pod, {name}, µs", found, goal, found < goal))
    written = min(run.events for run in runs if run.name == baselines.SPEAKING)
    met.append(_verdict("Events of all pods", written, pods, written >= pods))
    for name in baselines.KUBE_SCHEDULERS:
        if rates := _rates(runs, name):
            times = max(_rates(runs, baselines.SPEAKING)) / max(rates)
            met.append(_verdict(f"pods/s with events over {name}", times, _TIMES_KUBE, times >= _TIMES_KUBE))
    return met


def _verdict(what: str, found: float, goal: float, met: bool) -> bool:
    print(f"  {what:50} {found:9.1f}  goal {goal:g} {'met' if met else 'MISSED'}", flush=True)
    return met


def servers(folder: Path) -> Generator[tuple[str, Path, Path | None], None, None]:
    """Start one server after the other; yield its name, a kubeconfig, and a kube-scheduler to compare with."""
    assets, named = os.environ.get("KUBEBUILDER_ASSETS"), os.environ.get("KUBECONFIG")
    with apiservers.devcluster(folder / "devcluster") as kubeconfig:
        yield "devcluster's API server", kubeconfig, None
    kube_scheduler = Path(assets) / "kube-scheduler" if assets else None
    kube_scheduler = kube_scheduler if kube_scheduler is not None and kube_scheduler.exists() else None
    if named:
        yield f"kube-apiserver of {named}", Path(named), kube_scheduler
    elif assets:
        with apiservers.real(Path(assets), folder / "real") as kubeconfig:
            yield f"kube-apiserver, {apiservers.version(Path(assets))}", kubeconfig, kube_scheduler


def _floor(kubeconfig: Path) -> str:
    command = [sys.executable, "-m", "bench.http_floor", str(kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000, help="nodes (default 1000)")
    parser.add_argument("--pods", type=int, default=3000, help="pods of each run (default 3000)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds, of which the best counts (default 2)")
    parser.add_argument("--server", default="", help="only servers whose name contains this")
    options = parser.parse_args()
    # However it is ended, also by `timeout`, no server is left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"{os.cpu_count()} cores, Linux {os.uname().release}, Python {sys.version.split()[0]}; ", end="")
    print(f"{options.nodes} nodes, {options.pods} pods with 2 VFs")
    met = []
    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as root, closing(servers(Path(root))) as each:
        for name, kubeconfig, kube_scheduler in each:
            if options.server not in name:
                continue
            print(f"{name}\n  {'':{_WIDTH}} {'pods/s':>9} {'CPU µs a pod':>12} {'events':>9} {'VFs':>9} {'load':>9}")
            runs = asyncio.run(measure(kubeconfig, kubeconfig.parent, kube_scheduler, options))
            print(f"  CPU of one request by itself: {_floor(kubeconfig)}; a bind makes one, its event another")
            summary(runs)
            met += verdicts(runs, options.pods)
    return 0 if met and all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
