"""Bind groups of pods end to end on a real API server, beside kube-scheduler's own gang scheduling.

    KUBEBUILDER_ASSETS=DIR python -m bench.groups_e2e [--nodes 1000] [--members 4096] [--rounds 2]
                                                      [--loads TEXT]

DIR holds etcd, kube-apiserver and kube-scheduler of Kubernetes 1.36 or newer; kube-scheduler's gates GenericWorkload,
GangScheduling and TopologyAwareWorkloadScheduling are on. Both schedulers take turns on one cluster and read the same
PodGroups. Our members have 2 VFs each, its own are plain. The rate is of members that were bound, from the first to the
last, over all rounds; all exist before the scheduler starts. "alone" is the rate at which the server takes ready-made
Bindings of the same pods, 128 at once, from a client that decides nothing and watches less: about what the server
allows. The CPU is what a member costs in the scheduler, and in kube-apiserver and etcd, once the first is bound.

kube-apiserver collects garbage every few thousand Bindings, which takes it a second or more of CPU. So a round must be
long: of 1,024 members it takes half a second where that does not happen, and twice as long where it does.

The last lines give a cluster room for some of the groups only: of no other may a member be bound. Exit status 1 if a
goal is missed.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import harmonic_mean, mean

from bench.advertiser import cpu_s
from bench.loads import scheduler_load as load
from bench.scheduler_e2e import running
from bench.served import apiservers, baselines, served_cluster
from bench.served.baselines import MeasuredScheduler
from bench.served.served_cluster import Binds
from mooring import names
from mooring.kube.access import load_access
from mooring.kube.client import Client

OURS, KUBE, ALONE = "ours, 2 VFs a member", "kube-scheduler, plain", "binds alone"
_GATES = "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true"
_API = "scheduling.k8s.io/v1alpha2"
_GROUPS = f"/apis/{_API}/namespaces/default/podgroups"
_NODES = "/api/v1/nodes"
_RACK, _RACK_NODES = "example.com/rack", 16


@dataclass(frozen=True, slots=True)
class Load:
    """Groups of ``size`` members, each in one domain of ``topology``; we bind at least ``times`` as many a second."""

    name: str
    size: int
    times: float
    topology: str | None = None


LOADS = (
    Load("groups of 4", 4, 4),
    Load("groups of 16", 16, 4),
    Load("groups of 64", 64, 4),
    Load("groups of 16, each in a rack", 16, 8, _RACK),
)
# Four members fit a node by cpu, and so five groups the nodes.
_FEW_NODES, _FEW_GROUPS, _FITTING, _FULL = 21, 12, 5, Load("room for 5 of 12 groups of 16", 16, 0)
_LARGE_CPU = "15"
_SETTLED_S = 20.0


@dataclass(frozen=True, slots=True)
class Run:
    """How many members of each group were bound, the rate, and the CPU s of the scheduler and the servers a member."""

    bound: Counter[str]
    rate: float
    scheduler_s: float
    servers_s: float


def nodes(count: int) -> Iterator[load.Json]:
    """Return nodes without taints, sixteen a rack."""
    for number in range(count):
        node = load.node(number)
        node["metadata"]["labels"][_RACK] = f"rack-{number // _RACK_NODES}"
        yield node | {"spec": {}}


def _pod_group(load_: Load, number: int) -> load.Json:
    spec: load.Json = {"schedulingPolicy": {"gang": {"minCount": load_.size}}}
    if load_.topology is not None:
        spec["schedulingConstraints"] = {"topology": [{"key": load_.topology}]}
    return {"apiVersion": _API, "kind": "PodGroup", "metadata": {"name": f"train-{number}"}, "spec": spec}


def _member(load_: Load, number: int, cpu: str, scheduler: str) -> load.Json:
    group, member = divmod(number, load_.size)
    wanted: list[load.Json] = [{"min_tx_rate": 1000}, {"min_tx_rate": 500}]
    spec = {"schedulerName": scheduler, "schedulingGroup": {"podGroupName": f"train-{group}"}}
    pod = load.pod(number, wanted, cpu, spec)
    pod["metadata"]["name"] = f"train-{group}-{member}"
    if scheduler != names.SCHEDULER_NAME:
        pod["metadata"]["annotations"] = {}
    return pod


def _schedulers(assets: Path, kubeconfig: Path) -> list[MeasuredScheduler]:
    ours = next(one for one in baselines.ours(kubeconfig) if one.name == baselines.SPEAKING)
    config = kubeconfig.parent / "kube-scheduler.yaml"
    config.write_text(baselines.kube_configuration(kubeconfig))
    its = [str(assets / "kube-scheduler"), "--config", str(config), "--secure-port", "0", "--feature-gates", _GATES]
    return [MeasuredScheduler(OURS, ours.command, load.replica), MeasuredScheduler(KUBE, its, load.replica)]


async def _clear_groups(client: Client) -> None:
    """Delete all PodGroups, whose finalizer a controller of the cluster removes elsewhere."""
    for group in await served_cluster.items(client, _GROUPS):
        path = f"{_GROUPS}/{group['metadata']['name']}"
        await served_cluster.send(client, "PATCH", path, {"metadata": {"finalizers": None}})
    await served_cluster.clear(client, _GROUPS)


async def _stage(client: Client, load_: Load, groups: int, cpu: str, scheduler: str) -> None:
    """Fill an empty cluster with groups that wait."""
    await served_cluster.clear(client)
    await _clear_groups(client)
    await served_cluster.add(client, _GROUPS, (_pod_group(load_, number) for number in range(groups)))
    members = (_member(load_, number, cpu, scheduler) for number in range(groups * load_.size))
    await served_cluster.add_pods(client, members)


async def bind_groups(client: Client, measured: MeasuredScheduler, load_: Load, groups: int, fitting: int) -> Run:
    """Let a scheduler bind as many groups as fit in an otherwise empty cluster."""
    scheduler = names.SCHEDULER_NAME if measured.name == OURS else "default-scheduler"
    await _stage(client, load_, groups, _LARGE_CPU if fitting < groups else "250m", scheduler)
    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as folder:
        async with served_cluster.watching_binds(client) as binds:
            with running(measured, Path(folder)) as pid:
                await binds.reach(1)
                first, before = len(binds.times), (cpu_s(pid), _servers_s(pid))
                if fitting == groups:
                    await binds.reach(groups * load_.size)
                else:
                    await _settled(binds)
                after = cpu_s(pid), _servers_s(pid)
    placed = [pod for pod in await served_cluster.items(client, served_cluster.PODS) if pod["spec"].get("nodeName")]
    bound = Counter(pod["spec"]["schedulingGroup"]["podGroupName"] for pod in placed)
    later = max(len(placed) - first, 1)
    return Run(bound, binds.rate, (after[0] - before[0]) / later, (after[1] - before[1]) / later)


def _servers_s(scheduler: int = 0) -> float:
    """Return the seconds of CPU of the API server and etcd: of our children but a scheduler."""
    listed = (task / "children" for task in Path("/proc/self/task").iterdir())
    return sum(cpu_s(int(pid)) for one in listed for pid in one.read_text().split() if int(pid) != scheduler)


async def bind_alone(client: Client, load_: Load, groups: int) -> Run:
    """Bind the members of groups without a scheduler."""
    await _stage(client, load_, groups, "250m", names.SCHEDULER_NAME)
    made = await served_cluster.bindings(client)
    before = _servers_s()
    rate = await served_cluster.write_bindings(client, made)
    return Run(Counter(), rate, 0.0, (_servers_s() - before) / len(made))


async def _settled(binds: Binds) -> None:
    """Wait until no member has been bound for a while: kube-scheduler never rests, it tries the others again."""
    seen = -1
    while seen != len(binds.times):
        seen = len(binds.times)
        await asyncio.sleep(_SETTLED_S)


async def measure(assets: Path, kubeconfig: Path, options: argparse.Namespace) -> list[bool]:
    met = []
    async with Client(load_access(str(kubeconfig)), connections=served_cluster.BINDS_AT_ONCE) as client:
        await served_cluster.add_nodes(client, nodes(options.nodes))
        loads = [one for one in LOADS if options.loads in one.name]
        met += [await _compare(client, one, _schedulers(assets, kubeconfig), options) for one in loads]
        await served_cluster.clear(client)
        await served_cluster.clear(client, _NODES)
        await served_cluster.add_nodes(client, nodes(_FEW_NODES))
        for measured in _schedulers(assets, kubeconfig):
            run = await bind_groups(client, measured, _FULL, _FEW_GROUPS, _FITTING)
            met += _all_or_nothing(measured.name, run)
    return met


async def _compare(
    client: Client, load_: Load, schedulers: list[MeasuredScheduler], options: argparse.Namespace
) -> bool:
    """Let the schedulers take turns; print their rates and return whether ours is as high as it must be."""
    groups = options.members // load_.size
    runs: dict[str, list[Run]] = {measured.name: [] for measured in schedulers}
    runs[ALONE] = []
    for _ in range(options.rounds):
        for measured in schedulers:
            runs[measured.name].append(await bind_groups(client, measured, load_, groups, groups))
        runs[ALONE].append(await bind_alone(client, load_, groups))
    ours, its, alone = (harmonic_mean(run.rate for run in runs[name]) for name in (OURS, KUBE, ALONE))
    met = ours / its >= load_.times
    verdict = f"goal {load_.times:g} {'met' if met else 'MISSED'}"
    costs = " ".join(f"{_costs(runs[name]):>13}" for name in (OURS, KUBE, ALONE))
    print(
        f"{load_.name:30} {ours:7.0f} {its:7.0f} {ours / its:6.1f} {alone:7.0f} {costs}  {verdict}, "
        f"load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return met


def _costs(runs: list[Run]) -> str:
    """Return what a member costs in the scheduler and in the servers, in µs of CPU."""
    return f"{1e6 * mean(run.scheduler_s for run in runs):.0f} + {1e6 * mean(run.servers_s for run in runs):.0f}"


def _all_or_nothing(name: str, run: Run) -> list[bool]:
    """Print how many groups are bound whole and in part; return whether ours are as they must be."""
    whole = sum(number == _FULL.size for number in run.bound.values())
    part = len(run.bound) - whole
    print(f"{_FULL.name}: {name}: {whole} whole, {part} in part", flush=True)
    return [whole == _FITTING and part == 0] if name == OURS else []


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000, help="nodes (default 1000)")
    parser.add_argument("--members", type=int, default=4096, help="members of each load, in groups (default 4096)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds, which count together (default 2)")
    parser.add_argument("--loads", default="", help="only loads whose name contains this")
    options = parser.parse_args()
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if not named:
        parser.error("KUBEBUILDER_ASSETS names no folder with etcd, kube-apiserver and kube-scheduler")
    # However it is ended, also by `timeout`, no server is left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    assets = Path(named)
    print(f"{os.cpu_count()} cores, Linux {os.uname().release}, Python {sys.version.split()[0]}")
    print(f"{options.nodes} nodes, {options.members} members; {apiservers.version(assets)}; gates {_GATES}")
    print(f"{'':30} {'members bound a second':^30} {'CPU, µs a member: scheduler + servers':^41}")
    print(f"{'':30} {'ours':>7} {'its own':>7} {'ratio':>6} {'alone':>7} {'ours':>13} {'its own':>13} {'alone':>13}")
    flags = ("--feature-gates", _GATES, "--runtime-config", f"{_API}=true")
    with (
        tempfile.TemporaryDirectory(prefix="mooring-bench-") as root,
        apiservers.real(assets, Path(root), *flags) as kubeconfig,
    ):
        met = asyncio.run(measure(assets, kubeconfig, options))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
