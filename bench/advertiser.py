"""Time discovery, and measure the annotation and `mooring-advertiser serve` at rest; a line a host, as root.

    python -m bench.advertiser [--scans 50] [--seconds 180]

Discovery is a whole scan of a simulated host's tree: sysfs, ledger, altnames by RTNETLINK, and what follows from them.
The tree lies in a temporary folder: the kernel's own sysfs makes its text at each read, which takes longer. At rest the
program runs in the simulated host's network namespace, with as many netdevs, against devcluster's API server over
loopback.
"""

import argparse
import gc
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from advertiser.host.offer_file import OfferFile
from advertiser.host.read_host import Roots
from advertiser.inventory.facts import ClusterFacts
from advertiser.publish.scanner import Scan, Scanner
from bench.shim import rss_mib
from devcluster.hosts.layout import Layout
from devcluster.hosts.nic import Host, describe_host
from devcluster.hosts.sysfs import build
from devcluster.processes import Processes
from mooring.annotations.inventory import dump_inventory
from mooring.names import INVENTORY

_NODE = "bench-advertiser"
_SHAPES = ((2, 120), (8, 254))
# Imports, the first scans and the first patch are not rest.
_SETTLING_S = 10
# Seconds for a simulated host to start, and to end.
_HOST_S = 300.0
_GOALS = (
    "goals for 2 PFs x 120 VFs: discovery under 50 ms, annotation under 2048 bytes, RSS under 100 MiB, CPU under 0.1 %"
)


@dataclass(frozen=True, slots=True)
class Rest:
    """A program at rest: its memory, its share of one core, and whether its node was written meanwhile."""

    rss_mib: float
    cpu_percent: float
    written: bool


def discovery(host: Host, scans: int) -> tuple[list[float], int, int]:
    """Return each scan's milliseconds, and the annotation's bytes: as it is, and with every second VF unbound."""
    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as folder:
        root = Path(folder)
        build(root / "sys", host)
        roots = Roots(root / "sys", root / "state", root / "run")
        scanner = Scanner(roots, OfferFile(root / "offer.yaml", required=False), _NODE)
        scanner.scan(ClusterFacts())
        times = [timed(scanner) for _ in range(scans)]
        healthy = annotation_bytes(scanner.scan(ClusterFacts()))
        for function in host.functions():
            if function.vf is not None and function.vf % 2:
                (root / "sys/bus/pci/devices" / function.pci / "driver").unlink()
        return times, healthy, annotation_bytes(scanner.scan(ClusterFacts()))


def timed(scanner: Scanner) -> float:
    start = time.perf_counter()
    scanner.scan(ClusterFacts())
    return (time.perf_counter() - start) * 1000


def annotation_bytes(scan: Scan) -> int:
    return len(dump_inventory(scan.result.inventory).encode())


@contextmanager
def serving(pfs: int, vfs: int, root: Path) -> Iterator[tuple[int, str]]:
    """Start the host, the API server and the advertiser; yield its pid and its node's URL once it has published."""
    host, kubeconfig = Layout.at(root, _NODE), root / "kubeconfig"
    python = (sys.executable, "-m")
    with ExitStack() as stack:
        processes, hosts = Processes(root / "logs"), Processes(root / "logs")
        stack.callback(hosts.stop)
        shape = ("--pfs", str(pfs), "--vfs", str(vfs))
        hosts.start("hosts", [*python, "devcluster.hosts", "up", "--root", str(root), "--node", _NODE, *shape])
        stack.callback(halt, hosts.pid("hosts"), host)
        hosts.await_ready("hosts", host.description.exists, _HOST_S)
        stack.callback(processes.stop)
        api = ("--kubeconfig", str(kubeconfig), "--listen-netns", str(host.netns))
        processes.start("apiserver", [*python, "devcluster.apiserver", *api])
        processes.await_ready("apiserver", kubeconfig.exists)
        url = make_node(kubeconfig)
        folders = ("--sysfs", str(host.sys), "--state", str(host.state), "--run", str(host.run))
        flags = ("--kubeconfig", str(kubeconfig), "--node-name", _NODE, "--getpfs-addr", "127.0.0.1:54005", *folders)
        enter = ("nsenter", f"--net={host.netns}")
        processes.start("advertiser", [*enter, *python, "advertiser", "serve", *flags])
        processes.await_ready("advertiser", lambda: INVENTORY in metadata(url).get("annotations", {}))
        yield processes.pid("advertiser"), url


def halt(pid: int, host: Layout) -> None:
    """End the simulated host and wait until its namespace is gone: 2,000 links take longer than `Processes` waits."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _HOST_S
    while host.netns.exists() and time.monotonic() < deadline:
        time.sleep(0.1)


def make_node(kubeconfig: Path) -> str:
    """Create the node; return its URL."""
    server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _NODE}}
    content = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server}/api/v1/nodes", json.dumps(node).encode(), content)
    urllib.request.urlopen(request).close()
    return f"{server}/api/v1/nodes/{_NODE}"


def metadata(url: str) -> dict[str, dict[str, str]]:
    with urllib.request.urlopen(url) as answer:
        found: dict[str, dict[str, str]] = json.load(answer)["metadata"]
        return found


def at_rest(pfs: int, vfs: int, seconds: int) -> Rest:
    """Let the advertiser rest for ``seconds`` and return what it used."""
    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as folder, serving(pfs, vfs, Path(folder)) as (pid, url):
        time.sleep(_SETTLING_S)
        version, before_s, start = metadata(url)["resourceVersion"], cpu_s(pid), time.monotonic()
        time.sleep(seconds)
        spent_s, lasted_s = cpu_s(pid) - before_s, time.monotonic() - start
        written = metadata(url)["resourceVersion"] != version
        return Rest(rss_mib(pid), 100 * spent_s / lasted_s, written)


def cpu_s(pid: int) -> float:
    """Return a process's seconds of CPU, user and system, its threads included; proc(5), in ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def line(host: str, times: Sequence[float], sizes: Sequence[int], rest: Rest) -> str:
    discovered = f"{statistics.median(times):12.1f} {max(times):12.1f} {sizes[0]:12} {sizes[1]:12}"
    written = "yes" if rest.written else "no"
    return f"{host:18} {discovered} {rest.rss_mib:12.0f} {rest.cpu_percent:12.3f} {written:>12}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scans", type=int, default=50, help="scans of each host (default 50)")
    parser.add_argument("--seconds", type=int, default=180, help="at rest, three times the resync (default 180)")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, Linux {os.uname().release}, Python {sys.version.split()[0]}")
    heads = ("scan p50 ms", "max ms", "bytes", "half unbound", "RSS MiB", "CPU %", "written")
    print(f"{'':18}", *(f"{head:>12}" for head in heads))
    for pfs, vfs in _SHAPES:
        gc.collect()
        times, *sizes = discovery(describe_host(_NODE, 1, pfs=pfs, vfs=vfs), options.scans)
        rest = at_rest(pfs, vfs, options.seconds)
        print(line(f"{pfs} PFs x {vfs} VFs", times, sizes, rest), flush=True)
    print(f"{options.scans} scans; CPU of one core over {options.seconds} s at rest, resync 60 s\n{_GOALS}")


if __name__ == "__main__":
    main()
