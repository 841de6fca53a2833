"""Replace the CRI shim under load, by a real systemd, in every way there is; say what a client of the CRI noticed.

    python -m bench.shim_upgrade [--rate 500] [--seconds 20] [--only reload,upgrade,restart,kill]
    python -m bench.shim_upgrade --seconds 40 --only fail

As root, with Debian's systemd. It runs in namespaces of its own: the root folder is read-only there, and nothing on the
host changes. Each way has a load of its own; the shim is replaced after a quarter of its time. In ``reload`` that is
done three times. In ``fail`` the shim is stopped until it is bypassed, and started; the kubelet calls it again then.
"""

import argparse
import asyncio
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc

from bench.host.cri_outage import notice, poll_status, serve_runtime
from bench.host.own_systemd import LEAVE_THE_HOST, Systemd, isolate
from cli.node import venv
from cli.node.kubelet_calls import await_call

UNIT = "mooring-cri-shim.service"
SOCKET, RUNTIME = "/run/mooring/cri.sock", "/run/containerd/containerd.sock"
_PLACE, _UNITS = Path("/run/bench"), Path("/etc/systemd/system")
_FLAGS = Path("/var/lib/kubelet/kubeadm-flags.env")
_HERE = Path.cwd()
_ALONE_S = 120.0
_PROGRAMS = (("cri_shim", "mooring-cri-shim"), ("cni", "mooring-cni"), ("cri_shim.bypass", "mooring-shim-bypass"))


def program(path: Path, *command: str) -> None:
    """Write an executable that runs a command of this repository."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\ncd {shlex.quote(str(_HERE))} && exec {shlex.join(command)} "$@"\n')
    path.chmod(0o755)


def release(name: str) -> str:
    """Make a wheelhouse whose release is built from this repository; return its folder."""
    wheels = _PLACE / name
    wheels.mkdir(parents=True)
    (wheels / f"mooring-{version('mooring')}-py3-none-any.whl").write_text(name)
    folder = Path("/opt/mooring/versions") / venv.release_of(wheels)
    for module, one in _PROGRAMS:
        program(folder / "bin" / one, sys.executable, "-m", module)
    (folder / "complete").write_text(name)
    return str(wheels)


def make_host() -> Systemd:
    """Boot a host with a runtime and with a kubelet that polls its status, configured as kubeadm does."""
    for path in (_FLAGS, Path("/etc/cni/net.d/10-cluster.conflist"), Path(RUNTIME)):
        path.parent.mkdir(parents=True, exist_ok=True)
    # Debian's has its CNI plugins below /usr, which is read-only here.
    Path("/etc/containerd/config.toml").unlink(missing_ok=True)
    _FLAGS.write_text(f'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix://{RUNTIME}"\n')
    Path("/etc/cni/net.d/10-cluster.conflist").write_text(
        json.dumps({"cniVersion": "1.0.0", "name": "cluster", "plugins": [{"type": "bridge"}]})
    )
    program(Path("/opt/runtime"), sys.executable, "-m", "bench.shim_upgrade", "--runtime", RUNTIME)
    program(Path("/opt/kubelet"), sys.executable, "-m", "bench.shim_upgrade")
    units = {
        "containerd": "ExecStart=/opt/runtime\n",
        "kubelet": f"EnvironmentFile=-{_FLAGS}\nExecStart=/opt/kubelet $KUBELET_KUBEADM_ARGS\n",
    }
    for name, service in units.items():
        (_UNITS / f"{name}.service").write_text(f"{LEAVE_THE_HOST}[Service]\n{service}")
    (_UNITS / "lab.target").write_text(f"{LEAVE_THE_HOST}Wants=containerd.service kubelet.service\n")
    for _, name in _PROGRAMS:
        (_UNITS / f"{name}.service.d").mkdir()
        # The interpreter may lie below a home.
        log = f"StandardError=append:{_PLACE}/{name}.log\n"
        (_UNITS / f"{name}.service.d/bench.conf").write_text(f"{LEAVE_THE_HOST}[Service]\nProtectHome=no\n{log}")
    return Systemd()


def node(systemd: Systemd, *words: str) -> None:
    """Run mooring-node; raise RuntimeError with what it said if it fails."""
    done = systemd.run(sys.executable, "-m", "cli.node", *words, "--node-name", "n1", "--without-guard")
    if done.returncode:
        raise RuntimeError(f"mooring-node {words[0]}: {done.stdout}{done.stderr}")


def measure(replace: Callable[[], None], rate: float, seconds: float, beside: str) -> dict[str, Any]:
    """Replace the shim under load; return what was noticed, and how long the command took."""
    of_load = (SOCKET, str(rate), str(seconds))
    load = [sys.executable, "-m", "bench.shim_upgrade", "--load", *of_load]
    with subprocess.Popen(load, stdout=subprocess.PIPE, text=True) as noticing:
        assert noticing.stdout is not None
        noticing.stdout.readline()
        other = subprocess.Popen([beside, *of_load]) if beside else None
        time.sleep(seconds / 4)
        began = time.monotonic()
        replace()
        took = time.monotonic() - began
        seen: dict[str, Any] = json.loads(noticing.stdout.read())
        if other is not None:
            other.wait()
        return {**seen, "took_s": round(took, 2)}


def load(path: str, rate: str, seconds: str) -> None:
    """Call as a kubelet, and print a line when the first call was answered, then what was noticed."""
    Path("/proc/self/comm").write_text("kubelet")
    noticed = asyncio.run(notice(path, float(rate), float(seconds), lambda: print("calls", flush=True)))
    print(json.dumps(asdict(noticed)))


def await_one_process(systemd: Systemd) -> float:
    """Wait until the unit has one process again; return the seconds that this took."""
    began = time.monotonic()
    while len(systemd.processes(UNIT)) != 1:
        if time.monotonic() - began > _ALONE_S:
            raise TimeoutError(f"{UNIT} has {len(systemd.processes(UNIT))} processes without a call")
        time.sleep(0.2)
    return time.monotonic() - began


def await_link(*, there: bool) -> None:
    """Wait until a link leads past the shim, or none does any more."""
    began = time.monotonic()
    while Path(SOCKET).is_symlink() != there:
        if time.monotonic() - began > _ALONE_S:
            raise TimeoutError(f"{SOCKET} is {'no link' if there else 'still a link'}")
        time.sleep(0.1)


def report(ways: Mapping[str, Callable[[], None]], options: argparse.Namespace, systemd: Systemd) -> None:
    """Measure each way and print a line, or an object with ``--json``."""
    heads = ("way", "calls", "failed", "failing s", "unserved s", "slowest s", "ExecSync", "events", "lost", "took s")
    if not options.json:
        print(
            f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, grpcio {grpc.__version__}, {options.rate:.0f}/s"
        )
        print("{:8} {:>6} {:>6} {:>9} {:>10} {:>9} {:>20} {:>20} {:>5} {:>6}  alone s".format(*heads))
    for way, replace in ways.items():
        seen = measure(replace, options.rate, options.seconds, options.beside)
        seen["alone_s"] = round(await_one_process(systemd), 1)
        if options.json:
            print(json.dumps({"way": way, **seen}), flush=True)
            continue
        failed = sum(seen["failed"].values())
        print(
            f"{way:8} {seen['calls']:6} {failed:6} {seen['failing_s']:9} {seen['unserved_s']:10.3f}"
            f" {seen['slowest_s']:9.3f} {seen['exec_sync']:>20} {seen['stream']:>20} {seen['events_lost']:5}"
            f" {seen['took_s']:6} {seen['alone_s']:8}  {seen['failed'] or ''}",
            flush=True,
        )


def run(options: argparse.Namespace) -> None:
    systemd = make_host()

    def control(*words: str) -> None:
        done = systemd.run("systemctl", *words, UNIT)
        if done.returncode:
            raise RuntimeError(f"systemctl {words[0]}: {done.stderr}\n{(_PLACE / 'mooring-cri-shim.log').read_text()}")

    def reload_thrice() -> None:
        for _ in range(3):
            control("reload")

    def fail() -> None:
        control("stop")
        await_link(there=True)
        control("start")
        await_link(there=False)
        # The kubelet's connection past the shim is closed: it calls the shim again.
        await_call(Path("/"), time.monotonic())

    ways: dict[str, Callable[[], None]] = {
        "reload": reload_thrice,
        "upgrade": lambda: node(systemd, "upgrade", "--wheelhouse", release("second")),
        "restart": lambda: control("restart"),
        "kill": lambda: control("kill", "--kill-who=main", "--signal=KILL"),
        "fail": fail,
    }
    try:
        node(systemd, "install", "--wheelhouse", release("first"))
        report({way: ways[way] for way in options.only.split(",")}, options, systemd)
    finally:
        systemd.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=float, default=500, help="calls a second (default 500)")
    parser.add_argument("--seconds", type=float, default=20, help="of load for each way (default 20)")
    parser.add_argument("--only", default="reload,upgrade,restart,kill", help="which ways, by commas; also fail")
    parser.add_argument("--beside", default="", help="another client: a program called with socket, rate and seconds")
    parser.add_argument("--json", action="store_true", help="an object for each way, in place of a table")
    parser.add_argument("--runtime", metavar="SOCKET", help="only serve the runtime")
    parser.add_argument("--container-runtime-endpoint", metavar="SOCKET", help="only poll a runtime, as a kubelet")
    parser.add_argument("--load", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--isolated", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        load(*options.load)
    elif options.runtime:
        asyncio.run(serve_runtime(options.runtime))
    elif options.container_runtime_endpoint:
        asyncio.run(poll_status(options.container_runtime_endpoint.removeprefix("unix://")))
    elif options.isolated:
        run(options)
    else:
        return isolate(["-m", "bench.shim_upgrade", "--isolated", *sys.argv[1:]])
    return 0


if __name__ == "__main__":
    sys.exit(main())
