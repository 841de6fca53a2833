"""Install, upgrade and remove a fleet of simulated hosts while disks, hosts and installers fail, as root.

    python -m bench.fleet [--hosts 20] [--kills 30] [--at-once 4] [--seed 0]
    python -m bench.fleet --containerd 1.6 1.7 2 --releases FOLDER FOLDER

It prints a line for each stage. Exit status 1 if a promise does not hold; the last line names it. Real are the agents
of `mooring-node fleet`, their Lease on an API server, `mooring-node` on each host's own files, the full disk and the
kills. Simulated are systemd, kubelet and runtime (`bench.fleet.host`), the programs of the release, and the pods of the
ledger. Hosts with --containerd run that release of it, and the pods of the manifests (`bench.fleet.containerd`).
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from bench.fleet.agents import LEASE, NAMESPACE, Agents, Desired
from bench.fleet.containerd import ContainerdFleet, release_name
from bench.fleet.host import SimulatedHost, make_image
from bench.fleet.story import Fleet, stages
from cli.node.fleet.nodes import LABEL
from devcluster.api import Api
from devcluster.processes import Processes
from mooring.kube.access import load_access

_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
_PRIVATE = "MOORING_FLEET_PRIVATE"
_FETCH = Path(__file__).parents[2] / "devcluster/runtime/fetch"
_TAGS = ("first", "second")
# How fast the clocks of simulated agents go, and the longest that a stage takes. A real agent shows that it works every
# 20 s, and a simulated one should not take it for silent.
_SPEED, _SPEED_BESIDE_CONTAINERD = 20.0, 4.0
_STAGE_S, _STAGE_WITH_CONTAINERD_S = 600.0, 2400.0


def main() -> int:
    """Run the whole story; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--hosts", type=int, default=20, help="how many hosts, at least 3 (default 20)")
    parser.add_argument("--kills", type=int, default=30, help="agents that are killed in each stage (default 30)")
    parser.add_argument("--at-once", type=int, default=4, help="nodes that are changed at once (default 4)")
    parser.add_argument("--seed", type=int, default=0, help="what is killed, and when (default 0)")
    parser.add_argument("--containerd", nargs="*", default=[], metavar="VERSION", help="a host each, at least 3")
    parser.add_argument("--releases", nargs=2, type=Path, metavar="FOLDER", help="two folders of `./run release`")
    asked = parser.parse_args()
    if asked.containerd and (len(asked.containerd) < len("abc") or not asked.releases):
        parser.error("--containerd needs 3 versions and --releases")
    if _PRIVATE not in os.environ:
        # All mounts end with the namespace.
        spaces = ("unshare", "--mount", "--propagation", "private", sys.executable, "-m", "bench.fleet", *sys.argv[1:])
        return subprocess.run(spaces, env={**os.environ, _PRIVATE: "1"}, check=False).returncode
    # A socket's path has 108 characters at the most.
    with tempfile.TemporaryDirectory(prefix="mooring-fleet-", dir="/tmp") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
        try:
            return _run(asked, Path(folder))
        finally:
            subprocess.run(["umount", "--recursive", "--lazy", folder], check=True)


def _run(asked: argparse.Namespace, folder: Path) -> int:
    random = Random(asked.seed)
    with _cluster(asked, folder) as (kubeconfig, pods):
        return _play(asked, folder, random, kubeconfig, pods)


@contextmanager
def _cluster(asked: argparse.Namespace, folder: Path) -> Iterator[tuple[Path, ContainerdFleet | None]]:
    """Run an API server, and the hosts with containerd if there are any; yield its kubeconfig."""
    if not asked.containerd:
        processes, kubeconfig = Processes(folder / "logs"), folder / "kubeconfig"
        processes.start("apiserver", [sys.executable, "-m", "devcluster.apiserver", "--kubeconfig", str(kubeconfig)])
        try:
            processes.await_ready("apiserver", kubeconfig.exists)
            yield kubeconfig, None
        finally:
            processes.stop()
        return
    programs = [
        Path(subprocess.run([_FETCH, version], stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
        for version in asked.containerd
    ]
    runtimes = {f"c{number}": path for number, path in enumerate(programs, start=1)}
    pods = ContainerdFleet(folder / "c", runtimes, dict(zip(_TAGS, asked.releases, strict=True)))
    try:
        pods.start()
        yield pods.cluster.kubeconfig, pods
    finally:
        pods.stop()


def _play(
    asked: argparse.Namespace, folder: Path, random: Random, kubeconfig: Path, pods: ContainerdFleet | None
) -> int:
    (settings := folder / "settings").mkdir()
    api, access = Api.of(kubeconfig), load_access(str(kubeconfig))
    images = [make_image(folder / "images" / tag, tag) for tag in _TAGS]
    names = [release_name(release) for release in asked.releases] if pods is not None else ["", ""]
    rollouts = [
        Desired(image, asked.at_once, tag=tag, release=name)
        for image, tag, name in zip(images, _TAGS, names, strict=True)
    ]
    count = asked.hosts - len(asked.containerd)
    hosts = {name: SimulatedHost(name, folder / name, folder / "images") for name in _names(count)}
    speed = _SPEED if pods is None else _SPEED_BESIDE_CONTAINERD
    agents = Agents(access, settings, random, folder / "agents.log", speed)
    stage_s = _STAGE_S if pods is None else _STAGE_WITH_CONTAINERD_S
    fleet = Fleet(hosts, agents, api, random, asked.kills, rollouts[0], stage_s, pods)
    for name, host in hosts.items():
        host.make(with_small_disk=name == fleet.broken)
        api.request("POST", "/api/v1/nodes", _node(name))
        fleet.set_ready(name, "True")
    if pods is None:
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        api.request("POST", _LEASES, {"metadata": {"name": LEASE, "namespace": NAMESPACE}})
    else:
        pods.hosts[fleet.broken].break_disk()
    print(f"{asked.hosts} hosts, {asked.at_once} at once, seed {asked.seed}", flush=True)
    try:
        began = time.monotonic()
        for stage, seen in stages(fleet, rollouts):
            print(f"{time.monotonic() - began:6.1f} s  {stage}: {seen}", flush=True)
    except AssertionError as broken:
        print((folder / "agents.log").read_text()[-4000:], file=sys.stderr)
        print(f"failed with seed {asked.seed}: {broken}")
        return 1
    finally:
        for name in [*agents.running]:
            agents.kill(name)
    print(f"{agents.kills + (0 if pods is None else pods.kills)} agents were killed or replaced")
    return 0


def _names(count: int) -> list[str]:
    return [f"n{number:02}" for number in range(1, count + 1)]


def _node(name: str) -> dict[str, object]:
    """Return a simulated node. Nothing is placed there, because no kubelet runs there."""
    taint = {"key": "simulated", "effect": "NoSchedule"}
    return {"metadata": {"name": name, "labels": {LABEL: ""}}, "spec": {"taints": [taint]}}


if __name__ == "__main__":
    sys.exit(main())
