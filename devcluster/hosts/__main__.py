"""Simulated hosts: `python -m devcluster.hosts up --root DIR --node n1 --node n2` until SIGTERM.

<root>/<node>/host.json appears when a host is ready. `reboot --root DIR --node n1` puts a host that is up through a
reboot and returns when it is ready again.
"""

import argparse
import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import structlog

from devcluster.hosts.boot import SimulatedHosts
from devcluster.hosts.layout import Layout
from devcluster.hosts.links import LinkError
from devcluster.hosts.nic import describe_host
from devcluster.hosts.personalities.registry import PERSONALITIES
from mooring.program.log import set_up

_log = structlog.get_logger()
_PID = "hosts.pid"
_REQUEST = "reboot"
_REBOOT_S = 120.0


def main() -> int:
    """Return the exit status: 0, 1 failure, 2 usage."""
    arguments = _parser().parse_args()
    set_up("devcluster-hosts")
    try:
        return {"up": _up, "reboot": _reboot}[arguments.command](arguments)
    except (LinkError, OSError, ValueError) as error:
        _log.error("hosts cannot be simulated", reason=str(error))
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m devcluster.hosts", description=__doc__)
    parser.add_argument("command", choices=("up", "reboot"))
    parser.add_argument("--root", type=Path, required=True, help="folder of all hosts")
    parser.add_argument("--node", action="append", required=True, help="a host's name; repeat it for more hosts")
    parser.add_argument("--pfs", type=int, default=2, help="PFs a host, 1 to 8 (default 2)")
    parser.add_argument("--vfs", type=int, default=8, help="VFs a PF (default 8)")
    parser.add_argument("--total-vfs", type=int, help="sriov_totalvfs of each PF (default: as many as --vfs)")
    parser.add_argument("--mbps", type=int, default=100_000, help="line rate of each PF in Mb/s (default 100000)")
    parser.add_argument(
        "--nic",
        action="append",
        choices=sorted(PERSONALITIES),
        default=[],
        help="personality of the PFs (default mlx5-ethernet); repeat it for PFs of several",
    )
    parser.add_argument("--gpus-on", action="append", default=[], help="a host with GPUs; repeat it for more")
    parser.add_argument("--gpus", type=int, default=4, help="GPUs of each of those (default 4)")
    parser.add_argument("--refuse", action="append", default=[], help="a VF setting that these NICs refuse")
    parser.add_argument("--without-mooring", action="store_true", help="install no CNI chain: Mooring is not there yet")
    parser.add_argument("--first-number", type=int, default=1, help="number of the first host (default 1)")
    return parser


def _up(arguments: argparse.Namespace) -> int:
    hosts = [
        describe_host(
            name,
            number,
            pfs=arguments.pfs,
            vfs=arguments.vfs,
            total=arguments.total_vfs,
            mbps=arguments.mbps,
            refuse=tuple(arguments.refuse),
            nics=arguments.nic,
            gpus=arguments.gpus if name in arguments.gpus_on else 0,
        )
        for number, name in enumerate(arguments.node, start=arguments.first_number)
    ]
    hosts_up = SimulatedHosts(arguments.root, hosts, arguments.without_mooring)
    with _signals() as signals:
        hosts_up.start()
        pid = arguments.root / _PID
        try:
            pid.write_text(str(os.getpid()))
            _log.info("simulated hosts are up", nodes=arguments.node)
            _serve(hosts_up, signals)
        finally:
            pid.unlink(missing_ok=True)
            hosts_up.stop()
    return 0


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """Turn the handled signals into bytes on a socket, each byte a signal's number."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda _number, _frame: None)
    signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    with ours, theirs:
        yield ours


def _serve(hosts_up: SimulatedHosts, signals: socket.socket) -> None:
    """Keep every host in step with its links until a signal ends it."""
    while True:
        with selectors.DefaultSelector() as selector:
            selector.register(signals, selectors.EVENT_READ)
            for sync in hosts_up.syncs.values():
                selector.register(sync, selectors.EVENT_READ, sync)
            received = _follow(selector, signals)
        if received != signal.SIGUSR1:
            return
        _reboot_requested(hosts_up)


def _follow(selector: selectors.BaseSelector, signals: socket.socket) -> int:
    """Let hosts catch up until a signal comes; return its number."""
    while True:
        for key, _events in selector.select():
            if key.data is None:
                return signals.recv(1)[0]
            key.data.catch_up()


def _reboot_requested(hosts_up: SimulatedHosts) -> None:
    for host in hosts_up.hosts:
        request = hosts_up.layout(host).home / _REQUEST
        if request.exists():
            hosts_up.reboot(host.name)
            _log.info("simulated host was rebooted", node=host.name)
            request.unlink()


def _reboot(arguments: argparse.Namespace) -> int:
    pid = int((arguments.root / _PID).read_text())
    requests = [Layout.at(arguments.root, name).home / _REQUEST for name in arguments.node]
    for request in requests:
        request.touch()
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + _REBOOT_S
    while any(request.exists() for request in requests):
        if time.monotonic() > deadline:
            raise TimeoutError(f"hosts {arguments.node!r} did not come back within {_REBOOT_S:.0f} s")
        time.sleep(0.02)
    return 0


if __name__ == "__main__":
    sys.exit(main())
