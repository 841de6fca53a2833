"""Install, upgrade and remove a fleet of simulated hosts while disks, hosts and installers fail, as root.

    python -m bench.fleet [--hosts 20] [--kills 30] [--at-once 4] [--seed 0]

It prints a line for each stage. Exit status 1 if a promise does not hold; the last line names it. Real are the agents
of `mooring-node fleet`, their Lease on an API server, `mooring-node` on each host's own files, the full disk and the
kills. Simulated are systemd, kubelet and runtime (`bench.fleet.host`), the programs of the release, and the pods of the
ledger.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from random import Random

from bench.fleet.agents import LEASE, NAMESPACE, Agents, Desired
from bench.fleet.host import SimulatedHost, make_image
from bench.fleet.story import SMALL_DISK, Fleet, stages
from cli.node.fleet.nodes import LABEL
from devcluster.processes import Processes
from mooring.kube.access import load_access

_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
_PRIVATE = "MOORING_FLEET_PRIVATE"


def main() -> int:
    """Run the whole story; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--hosts", type=int, default=20, help="how many hosts, at least 3 (default 20)")
    parser.add_argument("--kills", type=int, default=30, help="agents that are killed in each stage (default 30)")
    parser.add_argument("--at-once", type=int, default=4, help="nodes that are changed at once (default 4)")
    parser.add_argument("--seed", type=int, default=0, help="what is killed, and when (default 0)")
    asked = parser.parse_args()
    if _PRIVATE not in os.environ:
        # All mounts end with the namespace.
        spaces = ("unshare", "--mount", "--propagation", "private", sys.executable, "-m", "bench.fleet", *sys.argv[1:])
        return subprocess.run(spaces, env={**os.environ, _PRIVATE: "1"}, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="mooring-fleet-") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
        try:
            return _run(asked, Path(folder))
        finally:
            subprocess.run(["umount", "--recursive", "--lazy", folder], check=True)


def _run(asked: argparse.Namespace, folder: Path) -> int:
    random, processes, kubeconfig = Random(asked.seed), Processes(folder / "logs"), folder / "kubeconfig"
    processes.start("apiserver", [sys.executable, "-m", "devcluster.apiserver", "--kubeconfig", str(kubeconfig)])
    (settings := folder / "settings").mkdir()
    images = [make_image(folder / "images" / name, name) for name in ("first", "second")]
    hosts = {name: SimulatedHost(name, folder / name, folder / "images") for name in _names(asked.hosts)}
    processes.await_ready("apiserver", kubeconfig.exists)
    access = load_access(str(kubeconfig))
    agents = Agents(access, settings, random, folder / "agents.log")
    fleet = Fleet(hosts, agents, random, asked.kills, Desired(images[0], asked.at_once))
    for name, host in hosts.items():
        host.make(disk_bytes=SMALL_DISK if name == fleet.broken else None)
    for name in hosts:
        _post(f"{access.server}/api/v1/nodes", _node(name))
    _post(f"{access.server}/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    _post(f"{access.server}{_LEASES}", {"metadata": {"name": LEASE, "namespace": NAMESPACE}})
    print(f"{asked.hosts} hosts, {asked.at_once} at once, seed {asked.seed}", flush=True)
    try:
        began = time.monotonic()
        for stage, seen in stages(fleet, images):
            print(f"{time.monotonic() - began:6.1f} s  {stage}: {seen}", flush=True)
    except AssertionError as broken:
        print((folder / "agents.log").read_text()[-4000:], file=sys.stderr)
        print(f"failed with seed {asked.seed}: {broken}")
        return 1
    finally:
        for name in [*agents.running]:
            agents.kill(name)
        processes.stop()
    print(f"{agents.kills} agents were killed or replaced")
    return 0


def _names(count: int) -> list[str]:
    return [f"n{number:02}" for number in range(1, count + 1)]


def _node(name: str) -> object:
    ready = {"type": "Ready", "status": "True"}
    return {"metadata": {"name": name, "labels": {LABEL: ""}}, "status": {"conditions": [ready]}}


def _post(url: str, document: object) -> None:
    request = urllib.request.Request(url, json.dumps(document).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=30).close()


if __name__ == "__main__":
    sys.exit(main())
