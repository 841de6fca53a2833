"""Measure mooring-cni, warm, against the Go plugin host-device: `python -m bench.cni`, as root.

Both move veths of one simulated host (`devcluster.hosts`) into namespaces and back, with addresses by host-local, and
are executed as a runtime executes them; rounds take turns, so that both see the same machine. No VF settings are
requested, since host-device has none. A bare rtnetlink loop shows what the kernel takes for the same moves.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cni.kernel import netlink, netns
from devcluster.hosts.chain import composed_cni
from devcluster.hosts.layout import Layout
from devcluster.hosts.nic import Host, load_host
from devcluster.processes import Processes

NODE = "cnibench"
PLUGINS = Path("/usr/lib/cni")
_VFS = 64
_PODS = 32
_AT_ONCE = (1, 8, 32)
_MANY = 4
_SETTLES_S = 60
_GOALS = """\
goals: ADD+DEL of one interface at most 1.30 of host-device's time; of four interfaces in one ADD at most 0.50 an
       interface; 32 pods at once at least 1.50 of its throughput"""


@dataclass(frozen=True, slots=True)
class Job:
    """One call of a plugin: its executable, environment and standard input."""

    program: str
    environment: Mapping[str, str]
    stdin: bytes

    def run(self) -> float:
        """Execute it as a runtime does; return milliseconds, raise RuntimeError if it fails."""
        start = time.perf_counter()
        done = subprocess.run(
            [self.program], input=self.stdin, env=self.environment, capture_output=True, check=False, timeout=60
        )
        took = (time.perf_counter() - start) * 1000
        if done.returncode != 0:
            raise RuntimeError(f"{self.program} {self.environment['CNI_COMMAND']}: {done.stdout!r} {done.stderr!r}")
        return took


@dataclass(slots=True)
class Times:
    """Milliseconds of each ADD and DEL, and the seconds that each round took."""

    add: list[float] = field(default_factory=list)
    remove: list[float] = field(default_factory=list)
    rounds_s: list[float] = field(default_factory=list)

    @property
    def both(self) -> float:
        return statistics.median(self.add) + statistics.median(self.remove)

    def throughput(self, pods: int) -> float:
        return pods / statistics.median(self.rounds_s)


@dataclass(frozen=True, slots=True)
class Bench:
    """A simulated host and its pods; the caller's thread is in the host's network namespace."""

    layout: Layout
    host: Host

    def netdevs(self) -> list[tuple[str, str, int, str]]:
        """Return PF, VF's PCI address, index and netdev of every VF, the PFs in turn."""
        of_vf = (each for each in self.host.functions() if each.vf is not None)
        rows = [(each.pf.name, each.pci, each.vf or 0, each.netdev) for each in of_vf]
        return sorted(rows, key=lambda row: (row[2], row[0]))

    def settle(self, only: slice = slice(None)) -> None:
        """Wait until the simulated sysfs shows the VFs' netdevs: the kernel's does so at once, this one lags."""
        rows = self.netdevs()[only]
        shown = [self.layout.sys / "bus/pci/devices" / pci / "net" / netdev for _, pci, _, netdev in rows]
        deadline = time.monotonic() + _SETTLES_S
        while not all(path.exists() for path in shown):
            if time.monotonic() >= deadline:
                raise RuntimeError("the simulated sysfs does not show every netdev")
            time.sleep(0.01)

    def ours(self, command: str, pod: int, _vf: int = 0) -> list[Job]:
        conf = {
            **_conf("mooring-cni", self._ipam("ours")),
            "node": NODE,
            "state": str(self.layout.state),
            "run": str(self.layout.run),
            "sysfs": str(self.layout.sys),
            "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {}},
        }
        return [self._job(str(self.layout.cni_bin / "mooring-cni"), command, pod, "eth0", conf)]

    def theirs(self, command: str, pod: int, vfs: int = 1) -> list[Job]:
        """Return a call for each interface: host-device takes one device a call."""
        jobs = []
        for number, (_, _, _, netdev) in enumerate(self.netdevs()[pod * vfs : pod * vfs + vfs]):
            conf = {**_conf("host-device", self._ipam("theirs")), "device": netdev}
            jobs.append(self._job(str(PLUGINS / "host-device"), command, pod, f"eth{number}", conf))
        return jobs

    def record(self, pod: int, vfs: int) -> None:
        """Write the CRI shim's record for a pod of so many VFs."""
        entries = [
            {"pf": pf, "vf": vf, "pci": pci, "link": "ethernet", "network": "default"}
            for pf, pci, vf, _ in self.netdevs()[pod * vfs : pod * vfs + vfs]
        ]
        assignment = {"v": 1, "uid": f"u{pod}", "node": NODE, "vfs": entries}
        path = self.layout.state / "pods" / f"u{pod}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"v": 1, "pod": f"bench/p{pod}", "assignment": assignment}))

    def _ipam(self, name: str) -> dict[str, object]:
        ranges = [[{"subnet": "10.99.0.0/16"}]]
        return {"type": "host-local", "ranges": ranges, "dataDir": str(self.layout.ipam / name)}

    def _job(self, program: str, command: str, pod: int, ifname: str, conf: dict[str, object]) -> Job:
        environment = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": f"c{pod}",
            "CNI_NETNS": pod_path(pod),
            "CNI_IFNAME": ifname,
            "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME=p{pod};K8S_POD_UID=u{pod}",
            "CNI_PATH": str(PLUGINS),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        }
        return Job(program, environment, json.dumps(conf).encode())


def _conf(kind: str, ipam: dict[str, object]) -> dict[str, object]:
    return {"cniVersion": "1.0.0", "name": "bench", "type": kind, "ipam": ipam}


def pod_path(pod: int) -> str:
    return f"/run/netns/{NODE}-{pod}"


@contextmanager
def simulated_host(root: Path, processes: Processes, server: str = "server", pods: int = _PODS) -> Iterator[Bench]:
    """Start host and warm server, whose process has the name ``server``, and make the pods' namespaces."""
    with ExitStack() as stack:
        layout = Layout.at(root, NODE)
        hosts = ("up", "--root", str(root), "--node", NODE, "--vfs", str(_VFS))
        processes.start("hosts", [sys.executable, "-m", "devcluster.hosts", *hosts])
        processes.await_ready("hosts", layout.description.exists)
        start_server(layout, processes, server, composed_cni(layout), layout.run / "cni.sock")
        for pod in range(pods):
            subprocess.run(("ip", "netns", "add", Path(pod_path(pod)).name), check=True)
            stack.callback(subprocess.run, ("ip", "netns", "delete", Path(pod_path(pod)).name), check=True)
        yield Bench(layout, load_host(layout.description.read_text()))


def start_server(layout: Layout, processes: Processes, name: str, program: Sequence[str], socket: Path) -> None:
    """Start a warm server of the host; ``program`` is the command that is mooring-cni there."""
    serve = ["serve", "--socket", str(socket), "--state", str(layout.state), "--run", str(layout.run)]
    inside = ["nsenter", f"--net={layout.netns}"]
    processes.start(name, [*inside, *program, *serve, "--sysfs", str(layout.sys), "--node-name", NODE])
    processes.await_ready(name, socket.exists)


@contextmanager
def bench_host() -> Iterator[Bench]:
    """Start host, warm server and pods' namespaces, and put this thread into the host's namespace."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mooring-bench-")))
        processes = Processes(root / "logs")
        stack.callback(processes.stop)
        bench = stack.enter_context(simulated_host(root, processes))
        netns.enter(str(bench.layout.netns))
        yield bench


Jobs = Callable[[str, int, int], Sequence[Job]]


def in_round(bench: Bench, jobs: Jobs, pods: int, vfs: int, times: Times) -> None:
    """ADD all pods at once, then DEL them all at once; the calls of one pod come one after the other."""

    def of_pod(command: str, pod: int) -> float:
        return sum(job.run() for job in jobs(command, pod, vfs))

    bench.settle()
    start = time.perf_counter()
    with ThreadPoolExecutor(pods) as pool:
        times.add += pool.map(lambda pod: of_pod("ADD", pod), range(pods))
        times.remove += pool.map(lambda pod: of_pod("DEL", pod), range(pods))
    times.rounds_s.append(time.perf_counter() - start)


def in_turns(bench: Bench, pods: int, vfs: int, rounds: int) -> tuple[Times, Times]:
    """Measure both plugins in turns, after a round of each that is not counted."""
    ours, theirs = Times(), Times()
    for pod in range(pods):
        bench.record(pod, vfs)
    for warm in range(rounds + 1):
        in_round(bench, bench.ours, pods, vfs, ours if warm else Times())
        in_round(bench, bench.theirs, pods, vfs, theirs if warm else Times())
    return ours, theirs


def floor(bench: Bench, pods: int, rounds: int, vfs: int = 1) -> Times:
    """Move links of each pod in and out, with the least that a plugin must do: move, name, address, up; and back up."""
    home = f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net"
    names = [netdev for _, _, _, netdev in bench.netdevs()]

    def enter(pod: int) -> None:
        def arrive() -> None:
            for number in range(vfs):
                netlink.add_address(_index(f"eth{number}"), f"10.99.{number}.{pod + 2}/16")
                netlink.set_up(_index(f"eth{number}"), up=True)

        for number in range(vfs):
            netlink.move(_index(names[pod * vfs + number]), pod_path(pod), f"eth{number}")
        netns.run_in(pod_path(pod), arrive)

    def leave(pod: int) -> None:
        def depart() -> None:
            for number in range(vfs):
                netlink.move(_index(f"eth{number}"), home, names[pod * vfs + number])

        netns.run_in(pod_path(pod), depart)
        for number in range(vfs):
            netlink.set_up(_index(names[pod * vfs + number]), up=True)

    times = Times()
    with ThreadPoolExecutor(pods) as pool:
        for _ in range(rounds):
            start = time.perf_counter()
            times.add += pool.map(lambda pod: _timed(lambda: enter(pod)), range(pods))
            times.remove += pool.map(lambda pod: _timed(lambda: leave(pod)), range(pods))
            times.rounds_s.append(time.perf_counter() - start)
    return times


def _index(name: str) -> int:
    index = netlink.index_of(name)
    assert index is not None, f"no interface {name!r}"
    return index


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def percentile(times: Sequence[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def _line(what: str, times: Times, pods: int) -> None:
    shares = [percentile(found, share) for found in (times.add, times.remove) for share in (0.5, 0.99)]
    columns = "".join(f"{value:9.1f}" for value in shares)
    print(f"{what:36}{columns}{times.both:10.1f}{times.throughput(pods):9.1f}", flush=True)


def _shares(times: Times, theirs: Times) -> str:
    """Return a time and a throughput as shares of host-device's; both count whole rounds, ADDs and DELs of all pods."""
    share = statistics.median(theirs.rounds_s) / statistics.median(times.rounds_s)
    return f"time {times.both / theirs.both:.2f}, throughput {share:.2f}"


def report(bench: Bench, rounds: int) -> None:
    """Measure and print a line for each load, then the ratios of the goals."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Linux {platform.release()}; milliseconds")
    print(f"{'':36}{'ADD p50':>9}{'p99':>9}{'DEL p50':>9}{'p99':>9}{'ADD+DEL':>10}{'pods/s':>9}")
    ratios, single = [], 0.0
    for pods in _AT_ONCE:
        least = floor(bench, pods, max(rounds // pods, 5))
        ours, theirs = in_turns(bench, pods, 1, max(rounds // pods, 5))
        _line(f"mooring-cni, {pods} at once", ours, pods)
        _line(f"host-device, {pods} at once", theirs, pods)
        _line(f"bare rtnetlink, {pods} at once", least, pods)
        ratios += [f"mooring-cni, {pods} at once: {_shares(ours, theirs)}"]
        ratios += [f"bare rtnetlink, {pods} at once: {_shares(least, theirs)}"]
        single = single or theirs.both
    least = floor(bench, 1, max(rounds // _MANY, 5), _MANY)
    ours, theirs = in_turns(bench, 1, _MANY, max(rounds // _MANY, 5))
    _line(f"mooring-cni, {_MANY} interfaces in one", ours, 1)
    _line(f"host-device, {_MANY} interfaces in {_MANY}", theirs, 1)
    _line(f"bare rtnetlink, {_MANY} interfaces", least, 1)
    for name, times in {"mooring-cni": ours, "bare rtnetlink": least}.items():
        same = f"{times.both / theirs.both:.2f} of as many calls"
        ratios.append(
            f"{name}, {_MANY} interfaces at once: {times.both / _MANY / single:.2f} of one's time each, {same}"
        )
    print("\n".join(("of host-device's, in the same run:", *ratios)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100, help="ADD+DEL of one interface, each plugin (default 100)")
    options = parser.parse_args()
    with bench_host() as bench:
        report(bench, options.rounds)
    print(_GOALS)


if __name__ == "__main__":
    main()
