"""Weigh the scheduler end to end over HTTPS: CPU of its process a bound pod, and pods/s; a line a run.

    python -m bench.scheduler_e2e [--nodes 1000] [--pods 3000] [--rounds 2]

Against devcluster's API server, and against a real one where KUBECONFIG names one or KUBEBUILDER_ASSETS a folder with
etcd and kube-apiserver. A kube-scheduler in that folder takes turns on the same cluster with the same pods less their
VFs, its client's limits lifted. Pods are created beforehand. A process's CPU (user and system) counts from its start to
its rest, less what it takes to start on the same cluster without pods. "binds alone" is the rate at which the server
takes ready-made Bindings, 32 at once, from one client that decides nothing: about what the server allows, and no bound,
since other work on the machine slows each run differently. Exit status 1 if a goal is missed.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import apiservers, served_cluster
from bench import scheduler_load as load
from bench.advertiser import cpu_s
from devcluster.processes import Processes
from mooring.kube.access import load_access
from mooring.kube.client import Client

_BIND_MICROS, _EVENT_MICROS, _TIMES_KUBE = 450, 700, 3
# A process that takes less than this many seconds of CPU in a second is at rest.
_REST_CPU_S, _REST_S, _LONGEST_S = 0.03, 1.0, 120.0


@dataclass(frozen=True, slots=True)
class Contender:
    """A scheduler: its command, and the pods' ``schedulerName``; ``goal`` is the most CPU a pod in µs, 0 for none."""

    name: str
    command: Sequence[str]
    scheduler: str = "mooring"
    goal: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """What one run showed: binds a second, CPU µs a pod, and the Events it left."""

    contender: Contender
    rate: float
    micros: float
    events: int


def contenders(kubeconfig: Path, folder: Path, rival: Path | None) -> list[Contender]:
    flags = ("--kubeconfig", str(kubeconfig), "--leader-elect", "false", "--metrics-addr", "")
    found = [
        Contender("without events", [sys.executable, "-m", "bench.silent_scheduler", *flags], goal=_BIND_MICROS),
        Contender("with events", [sys.executable, "-m", "scheduler", *flags], goal=_EVENT_MICROS),
    ]
    if rival is not None:
        config = folder / "kube-scheduler.yaml"
        config.write_text(_rival_config(kubeconfig))
        command = [str(rival), "--config", str(config), "--secure-port", "0"]
        found.append(Contender("kube-scheduler", command, "default-scheduler"))
    return found


def _rival_config(kubeconfig: Path) -> str:
    """Return kube-scheduler's configuration, its defaults but for the client's limits."""
    connection = {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000}
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return json.dumps(document | {"clientConnection": connection, "leaderElection": {"leaderElect": False}})


@contextmanager
def running(contender: Contender, folder: Path) -> Iterator[int]:
    processes = Processes(folder / "logs")
    try:
        processes.start(contender.name.replace(" ", "-"), contender.command)
        yield processes.pid(contender.name.replace(" ", "-"))
    finally:
        processes.stop()


async def at_rest(pid: int) -> float:
    """Wait until a process rests; return the seconds of CPU that it has used."""
    deadline, spent = time.monotonic() + _LONGEST_S, -1.0
    while (now := cpu_s(pid)) - spent >= _REST_CPU_S or now < _REST_CPU_S:
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} is not at rest after {_LONGEST_S:.0f} s")
        spent = now
        await asyncio.sleep(_REST_S)
    return now


async def weigh(client: Client, contender: Contender, pods: Sequence[load.Json], folder: Path) -> Run:
    """Let a scheduler bind all pods of an otherwise empty cluster."""
    await served_cluster.clear(client)
    with running(contender, folder) as pid:
        start_s = await at_rest(pid)
    ours = pods if contender.scheduler == "mooring" else served_cluster.plain(pods, contender.scheduler)
    await served_cluster.add_pods(client, ours)
    async with served_cluster.watching_binds(client) as binds:
        with running(contender, folder) as pid:
            await binds.reach(len(pods))
            spent_s = await at_rest(pid)
    events = await served_cluster.count_events(client)
    return Run(contender, binds.rate, 1e6 * (spent_s - start_s) / len(pods), events)


async def measure(kubeconfig: Path, folder: Path, rival: Path | None, options: argparse.Namespace) -> list[Run]:
    pods = [load.mixed_pod(number) for number in range(options.pods)]
    runs = []
    async with Client(load_access(str(kubeconfig)), connections=32) as client:
        await served_cluster.add_nodes(client, options.nodes)
        for _ in range(options.rounds):
            for contender in contenders(kubeconfig, folder, rival):
                run = await weigh(client, contender, pods, folder)
                print(f"  {contender.name:16} {run.rate:9.0f} {run.micros:12.0f} {run.events:9}", flush=True)
                runs.append(run)
            await served_cluster.clear(client)
            await served_cluster.add_pods(client, pods)
            print(f"  {'binds alone':16} {await served_cluster.bind_all(client):9.0f}", flush=True)
    return runs


def verdicts(runs: Sequence[Run], pods: int) -> list[bool]:
    """Print each goal with the best of the rounds; say which are met."""
    met = []
    for name, goal in (("without events", _BIND_MICROS), ("with events", _EVENT_MICROS)):
        found = min(run.micros for run in runs if run.contender.name == name)
        met.append(_verdict(f"CPU a bound pod, {name}, µs", found, goal, found < goal))
    written = min(run.events for run in runs if run.contender.name == "with events")
    met.append(_verdict("Events of all pods", written, pods, written >= pods))
    rivals = [run.rate for run in runs if run.contender.name == "kube-scheduler"]
    if rivals:
        times = max(run.rate for run in runs if run.contender.name == "with events") / max(rivals)
        met.append(_verdict("pods/s with events over kube-scheduler's", times, _TIMES_KUBE, times >= _TIMES_KUBE))
    return met


def _verdict(what: str, found: float, goal: float, met: bool) -> bool:
    print(f"  {what:48} {found:9.1f}  goal {goal:g} {'met' if met else 'MISSED'}", flush=True)
    return met


def servers(folder: Path) -> Generator[tuple[str, Path, Path | None], None, None]:
    """Start one server after the other; yield its name, a kubeconfig, and a kube-scheduler to hold us against."""
    assets, named = os.environ.get("KUBEBUILDER_ASSETS"), os.environ.get("KUBECONFIG")
    with apiservers.devcluster(folder / "devcluster") as kubeconfig:
        yield "devcluster's API server", kubeconfig, None
    rival = Path(assets) / "kube-scheduler" if assets else None
    rival = rival if rival is not None and rival.exists() else None
    if named:
        yield f"kube-apiserver of {named}", Path(named), rival
    elif assets:
        with apiservers.real(Path(assets), folder / "real") as kubeconfig:
            yield f"kube-apiserver, {_version(assets)}", kubeconfig, rival


def _floor(kubeconfig: Path) -> str:
    command = [sys.executable, "-m", "bench.http_floor", str(kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _version(assets: str) -> str:
    command = [str(Path(assets) / "kube-apiserver"), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000, help="nodes (default 1000)")
    parser.add_argument("--pods", type=int, default=3000, help="pods of each run (default 3000)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds, of which the best counts (default 2)")
    parser.add_argument("--server", default="", help="only servers whose name contains this")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, Linux {os.uname().release}, Python {sys.version.split()[0]}; ", end="")
    print(f"{options.nodes} nodes, {options.pods} pods with 2 VFs")
    met = []
    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as root, closing(servers(Path(root))) as each:
        for name, kubeconfig, rival in each:
            if options.server not in name:
                continue
            print(f"{name}\n  {'':16} {'pods/s':>9} {'CPU µs a pod':>12} {'events':>9}")
            runs = asyncio.run(measure(kubeconfig, kubeconfig.parent, rival, options))
            print(f"  aiohttp alone, for one request: {_floor(kubeconfig)} µs of CPU, of which a bind makes one,")
            print("  and one more with its event")
            met += verdicts(runs, options.pods)
    return 0 if met and all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
