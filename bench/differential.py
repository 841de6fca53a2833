"""Let our scheduler and a real kube-scheduler decide about the same random pods; print every difference.

    KUBEBUILDER_ASSETS=DIR python -m bench.differential [--seed N] [--cases 300] [--nodes 8] [--self]

DIR holds etcd, kube-apiserver and kube-scheduler. Pods without VFs, of four priorities, with all kinds of rules, come
to clusters with running pods, of which no controller takes care. First ours decides. Where it binds a pod, the same pod
that fits that node only must be bound by kube-scheduler, for the same victims. Where there are victims, kube-scheduler
without that limit must lose as much: the same number of pods, of the same priorities. Where a pod waits, it must
wait with kube-scheduler too, for the same reasons. Scores are not compared: ours has others.

What differs is tried a second time, when both have certainly seen all.
``--self`` lets a second profile of kube-scheduler take the part of ours: that must give no difference. Exit status 1 if
anything differs.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from bench.loads import random_pods
from bench.loads.scheduler_load import Json
from bench.served import apiservers
from bench.served.random_cluster import RandomCluster, describe
from devcluster.processes import Processes
from mooring import names
from mooring.kube.access import load_access
from mooring.kube.client import Client

KUBE = "default-scheduler"
_CASES_A_CLUSTER = 10


class Comparison:
    """Cases one after another, and what came of them."""

    def __init__(self, client: Client, seed: int, nodes: int) -> None:
        self._random = Random(seed)
        self._cluster, self._seed, self._nodes = RandomCluster(client, self._random), seed, nodes
        self.counts = Counter[str]()

    async def compare(self, cases: int) -> None:
        await self._cluster.create_classes()
        for number in range(cases):
            if number % _CASES_A_CLUSTER == 0:
                await self._cluster.renew(f"seed{self._seed}-{number}", self._nodes)
            pod = random_pods.pod(self._random, f"p{number}")
            if not await self._difference(pod, again=False):
                continue
            # With a scheduler that had not seen everything, the first try says nothing.
            if difference := await self._difference(pod, again=True):
                self.counts["differences"] += 1
                print(f"case {number} differs: {difference}\n    {describe(pod)}", flush=True)

    async def _difference(self, pod: Json, *, again: bool) -> str:
        """Return in what the decisions about a pod differ; empty if in nothing."""
        cluster = self._cluster
        ours = await cluster.attempt(pod, names.SCHEDULER_NAME, again=again)
        if not again:
            self.counts[ours.verdict] += 1
            self.counts["preempting"] += bool(ours.victims)
        theirs = await cluster.attempt(pod, KUBE, ours.node, again=again)
        if ours != theirs:
            return f"ours {ours}; kube-scheduler{' there' if ours.node else ''} {theirs}"
        if ours.victims:
            anywhere = await cluster.attempt(pod, KUBE, again=again)
            if cluster.priorities(anywhere.victims) != cluster.priorities(ours.victims):
                return f"ours {ours}; kube-scheduler on any node {anywhere}"
        return ""


def kube_configuration(kubeconfig: Path, profiles: list[str]) -> str:
    """Return kube-scheduler's configuration; without dynamic resources, which add a message about every pod."""
    plugins = {"multiPoint": {"disabled": [{"name": "DynamicResources"}]}}
    document: Json = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    document["clientConnection"] = {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000}
    document["leaderElection"] = {"leaderElect": False}
    document["podInitialBackoffSeconds"] = document["podMaxBackoffSeconds"] = 1
    document["profiles"] = [{"schedulerName": profile, "plugins": plugins} for profile in profiles]
    return json.dumps(document)


def start(processes: Processes, assets: Path, kubeconfig: Path, folder: Path, *, itself: bool) -> None:
    """Start kube-scheduler, and ours unless kube-scheduler takes its part."""
    config = folder / "kube-scheduler.json"
    config.write_text(kube_configuration(kubeconfig, [KUBE, names.SCHEDULER_NAME] if itself else [KUBE]))
    processes.start("kube-scheduler", [str(assets / "kube-scheduler"), "--config", str(config), "--secure-port=0"])
    if not itself:
        flags = ("--kubeconfig", str(kubeconfig), "--leader-elect", "false", "--metrics-addr", "")
        processes.start("ours", [sys.executable, "-m", "scheduler", *flags])


async def run(kubeconfig: Path, seed: int, cases: int, nodes: int) -> Counter[str]:
    """Compare the two schedulers that run; return the counts."""
    async with Client(load_access(str(kubeconfig)), timeout_s=30.0) as client:
        comparison = Comparison(client, seed, nodes)
        await comparison.compare(cases)
        return comparison.counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=int(time.monotonic()), help="repeats a run (default: another one)")
    parser.add_argument("--cases", type=int, default=300, help="pods to decide about (default 300)")
    parser.add_argument("--nodes", type=int, default=8, help="nodes of each cluster (default 8)")
    parser.add_argument("--self", action="store_true", dest="itself", help="compare kube-scheduler with itself")
    options = parser.parse_args()
    if "KUBEBUILDER_ASSETS" not in os.environ:
        parser.error("KUBEBUILDER_ASSETS names no folder with etcd, kube-apiserver and kube-scheduler")
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with apiservers.real(assets, folder) as kubeconfig:
            processes = Processes(folder / "logs")
            try:
                start(processes, assets, kubeconfig, folder, itself=options.itself)
                counts = asyncio.run(run(kubeconfig, options.seed, options.cases, options.nodes))
            finally:
                processes.stop()
    print(
        f"seed {options.seed}: {options.cases} cases, {counts['bound']} bound, {counts['preempting']} of them by"
        f" preemption, {counts['unschedulable']} unschedulable, {counts['none']} not decided;"
        f" {counts['differences']} differences"
    )
    return 1 if counts["differences"] or counts["none"] else 0


if __name__ == "__main__":
    sys.exit(main())
