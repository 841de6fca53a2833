"""mooring-cri-shim: a transparent proxy between kubelet and runtime that gives containers the devices of their VFs."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from cri_shim.devices.device_check import DeviceCheck
from cri_shim.devices.device_nodes import Roots
from cri_shim.handover.background import in_background
from cri_shim.handover.take import Predecessor
from cri_shim.interceptors import Interceptors
from cri_shim.kubelet_call import KubeletCall
from cri_shim.listen import ListenError, socket_path
from cri_shim.metrics import Metrics
from cri_shim.notify import Systemd, watchdog_interval_s
from cri_shim.plan.inject import Rules
from cri_shim.preflight import check_keys, check_node
from cri_shim.records import Records
from cri_shim.server import Succession, serve
from mooring.annotations.assignment_keys import AssignmentKeys
from mooring.gpu.cdi_folders import DEFAULT_FOLDERS
from mooring.program import log
from mooring.program.config import ConfigError, load, option

PROGRAM = "mooring-cri-shim"
_SYSFS, _DEV, _PROC = Path("/sys"), Path("/dev"), Path("/proc")
_KEYS = Path("/etc/mooring/assignment-keys.pem")
_STATE, _RUN = Path("/var/lib/mooring"), Path("/run/mooring")
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Config:
    """Forward CRI calls to the runtime; check pods with VFs, record them, and add devices to their containers."""

    listen: str = option(
        "unix:///run/mooring/cri.sock", "socket to serve; for CRI-O its path must end in run/crio/crio.sock"
    )
    runtime: str = option("unix:///run/containerd/containerd.sock", "socket of the container runtime")
    node_name: str = option("", "name of this node; default: the host name in lower case")
    sysfs: Path = option(_SYSFS, "mount point of sysfs")
    dev: Path = option(_DEV, "folder of the device nodes; containers get those below infiniband/")
    proc: Path = option(_PROC, "mount point of procfs, where NVIDIA's driver describes its GPUs")
    cdi: str = option(DEFAULT_FOLDERS, "folders of CDI specifications, the same as the runtime's")
    state: Path = option(_STATE, "folder of the pod records and the ledger; must survive reboots")
    run: Path = option(_RUN, "folder of files that last until the next boot")
    metrics_addr: str = option("", "host:port to serve Prometheus metrics at; empty: no metrics")
    runtime_handlers: str = option(
        "runc,crun,nvidia,nvidia-cdi,nvidia-legacy,high-performance",
        "runtime handlers, separated by commas, whose containers share the host's kernel and can use VFs",
    )
    assignment_keys: Path = option(
        _KEYS, "PEM file of ed25519 public keys; if it exists, assignments need a signature by one of them"
    )
    management_devices: bool = option(False, "give containers umad and issm devices too, which can manage the fabric")
    stop_without_devices: bool = option(
        False, "stop containers without their VFs' devices while the kubelet calls the shim, so that it restarts them"
    )
    check: bool = option(False, "report whether this node is ready, and exit")
    take_over: bool = option(False, "take over from the running shim, in the background, as systemctl reload does")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        _, config = load(Config, PROGRAM, arguments, os.environ)
        if config.check:
            return _check(config)
        return in_background(partial(_run, config)) if config.take_over else _run(config, lambda: None)
    except ConfigError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2


def _run(config: Config, in_charge: Callable[[], None]) -> int:
    log.set_up(PROGRAM)
    try:
        predecessor = Predecessor(socket_path(config.listen)) if config.take_over else None
        asyncio.run(_serve(config, predecessor, in_charge))
    except (ListenError, OSError) as error:
        _log.error("cannot serve the socket", listen=config.listen, reason=str(error))
        return 1
    return 0


async def _serve(config: Config, predecessor: Predecessor | None, in_charge: Callable[[], None]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    handlers = frozenset(name.strip() for name in config.runtime_handlers.split(",") if name.strip())
    keys = AssignmentKeys(config.assignment_keys)
    rules = Rules(config.node_name or socket.gethostname().lower(), handlers, keys.refusal)
    metrics = Metrics()
    if config.metrics_addr:
        metrics.serve(config.metrics_addr)
    # systemd sets these variables only for the main process, which this process replaces.
    systemd = _systemd() if predecessor is None else predecessor.systemd
    records = Records(config.state, config.run)
    check = DeviceCheck(records, _roots(config), config.run, metrics, stops=config.stop_without_devices)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, check.ask)
    interceptors = Interceptors(rules, records, _roots(config))
    succession = Succession(predecessor, in_charge, metrics.stop_server)
    observe = KubeletCall(config.run).call_recorder(metrics.observe)
    await serve(config.listen, config.runtime, interceptors, check, observe, stop, systemd, succession=succession)


def _systemd() -> Systemd:
    return Systemd(os.environ.get("NOTIFY_SOCKET"), watchdog_interval_s(os.environ.get("WATCHDOG_USEC")))


def _check(config: Config) -> int:
    results = list(check_node(config.listen, config.runtime, config.state, _roots(config)))
    results.append(check_keys(AssignmentKeys(config.assignment_keys)))
    for result in results:
        print(f"{'ok ' if result.good else 'NOT'}  {result.subject:8} {result.detail}")
    return 0 if all(result.good for result in results) else 1


def _roots(config: Config) -> Roots:
    return Roots(config.sysfs, config.dev, config.management_devices, config.proc, config.cdi)


if __name__ == "__main__":
    sys.exit(main())
