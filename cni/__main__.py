"""mooring-cni: handle one CNI call, run the server (``serve``), or print the ledger (``show``)."""

import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import structlog

from cni.kernel.sysfs import Sysfs
from cni.server.dispatch import BOOT_ID, answer
from cni.server.show import show
from cni.server.socket_server import AlreadyServedError, serve_socket
from cni.spec.skel import BAD_CONFIG, IN_IPAM, IO_FAILURE, RECURSIVE_CALL, VERSIONS, CniError, error_answer
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from mooring.files import write_shared
from mooring.nic.vf_settings import RtnetlinkVfSettings, VfSettingsApi, VfSettingsSelector
from mooring.program import log
from mooring.program.config import ConfigError, is_configured, load, option
from mooring.records import extract, run_folder

PROGRAM = "mooring-cni"
COMMANDS = ("serve", "show")
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Options:
    """Attach VFs to pods and release them: serve (run the CNI server), show (print the ledger)."""

    socket: Path = option(Path("/run/mooring/cni.sock"), "unix socket of the CNI server")
    state: Path = option(Path("/var/lib/mooring"), "folder of the pod records and the ledger")
    run: Path = option(Path("/run/mooring"), "folder of files that last until the next boot")
    sysfs: Path = option(Path("/sys"), "root of sysfs")
    node_name: str = option("", "name of this node's Node object; default: the host name in lower case")
    metrics_addr: str = option("", "host:port to serve Prometheus metrics at; empty: no metrics")
    reconcile_s: float = option(
        10.0, "seconds between checks of the ledger for orphaned VFs; with 10 or less a VF is repaired within 30 s"
    )

    await_init: bool = option(
        False, "mooring-advertiser init creates this node's VFs: pods with VFs wait until RUN/init/ready exists"
    )
    enforce_offer: bool = option(
        True, "refuse assignments that exceed this node's offer; false is for tests of the NIC itself"
    )
    assignment_keys: Path = option(
        Path("/etc/mooring/assignment-keys.pem"),
        "PEM file of ed25519 public keys; if it exists, rate changes of running pods need a signature by one of them",
    )
    plugin: Path = option(
        Path("/etc/mooring/cni.json"),
        "file of this plugin's own fields; it and the configurations in CHAINS list the IPAM plugins that a "
        "network's configuration may use",
    )
    chains: Path = option(Path("/etc/cni/net.d"), "folder of the network configurations that the runtime reads")
    output: str = option("table", "output format of show: table or json", short="o")

    def defaults(self) -> dict[str, object]:
        """Return the values for fields that a network configuration leaves out."""
        node = self.node_name or platform.node().lower()
        places = {"state": str(self.state), "run": str(self.run), "sysfs": str(self.sysfs), "server": str(self.socket)}
        return {**places, "node": node, "awaitInit": self.await_init}

    def ipam_files(self) -> tuple[str, ...] | None:
        """Return the node's own files that name IPAM plugins; None if the machine has no configuration file."""
        return (str(self.plugin), str(self.chains)) if is_configured(os.environ) else None

    def node(self, vf_settings: Callable[[], VfSettingsApi]) -> Node:
        """Return the Node on which the server's repairs work."""
        return Node(
            Sysfs(self.sysfs),
            Ledger(self.state, self.run),
            self.run,
            VfSettingsSelector(vf_settings(), self.sysfs),
            BOOT_ID.read_text().strip(),
            self.enforce_offer,
        )


def main(arguments: Sequence[str] | None = None, vf_settings: Callable[[], VfSettingsApi] = RtnetlinkVfSettings) -> int:
    """Run the program and return its exit status: 0, 1 for a failure, 2 for wrong usage.

    Without arguments, and with CNI_COMMAND set, it handles one CNI call.
    """
    words = sys.argv[1:] if arguments is None else arguments
    log.set_up(PROGRAM)
    try:
        if not words and "CNI_COMMAND" in os.environ:
            return _call(vf_settings)
        command, options = load(Options, PROGRAM, words, os.environ, COMMANDS)
        return _show(options, vf_settings) if command == "show" else _serve(options, vf_settings)
    except (ConfigError, AlreadyServedError, OSError) as error:
        _log.error("mooring-cni exits", reason=str(error))
        return 2 if isinstance(error, ConfigError) else 1


def _call(vf_settings: Callable[[], VfSettingsApi]) -> int:
    """Handle the CNI call for which the runtime executes this program."""
    try:
        if IN_IPAM in os.environ:
            raise CniError(BAD_CONFIG, RECURSIVE_CALL)
        stdin = _read_stdin()
        _, options = load(Options, PROGRAM, (), os.environ)
    except (ConfigError, CniError, OSError) as error:
        # Runtimes read errors from stdout only.
        cni_error = error if isinstance(error, CniError) else CniError(BAD_CONFIG, str(error))
        sys.stdout.write(error_answer(cni_error, VERSIONS[0]))
        return 1
    # On an installed node (one with a configuration file) the operator chooses the folders, not the network's author.
    reply = answer(
        dict(os.environ),
        stdin,
        vf_settings,
        options.defaults(),
        enforces_places=is_configured(os.environ),
        ipam_files=options.ipam_files(),
        enforces_offer=options.enforce_offer,
    )
    sys.stdout.write(reply.text)
    return reply.status


def _read_stdin() -> bytes:
    try:
        with open(0, "rb", closefd=False) as stdin:
            return stdin.read()
    except OSError as unreadable:
        raise CniError(IO_FAILURE, "standard input cannot be read", str(unreadable)) from unreadable


def _serve(options: Options, vf_settings: Callable[[], VfSettingsApi]) -> int:
    """Serve until SIGTERM or SIGINT; finish the calls and repairs in progress."""
    # Imported here, so that one-shot calls do not load the metrics library.
    from cni.server.changed_rates import ChangedRates
    from cni.server.counters.collector import VfCountersCollector
    from cni.server.metrics import Metrics
    from cni.server.reconcile import Reconciler
    from cni.server.vf_faults import FaultReport
    from mooring.annotations.assignment_keys import AssignmentKeys

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    with serve_socket(
        options.socket,
        vf_settings,
        options.defaults(),
        ipam_files=options.ipam_files(),
        enforces_offer=options.enforce_offer,
    ) as server:
        _take_over(options)
        metrics = Metrics()
        server.observe = metrics.call
        if options.metrics_addr:
            metrics.serve(options.metrics_addr, VfCountersCollector(lambda: options.node(vf_settings), metrics).page)
        reconciler = Reconciler(lambda: options.node(vf_settings), metrics)
        report = FaultReport(
            lambda: options.node(vf_settings), metrics, options.ipam_files(), awaits_init=options.await_init
        )
        keys = AssignmentKeys(options.assignment_keys)
        changed_rates = ChangedRates(lambda: options.node(vf_settings), keys, metrics)
        threads = (
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="accept"),
            threading.Thread(target=report.run, args=(stop, options.reconcile_s), name="faults"),
            threading.Thread(target=reconciler.run, args=(stop, options.reconcile_s), name="reconcile"),
            threading.Thread(target=changed_rates.run, args=(stop,), name="rates"),
        )
        for thread in threads:
            thread.start()
        _log.info("mooring-cni serves", node=options.node_name, socket=str(options.socket))
        stop.wait()
        server.shutdown()
        for thread in threads:
            thread.join()
    return 0


def _take_over(options: Options) -> None:
    """Create the folders of this boot, and write the version of this server."""
    from cni.server.extracts import make_folders, show_hardware_results, show_recorded_pods
    from cni.server.rates_states import take_over

    is_new = not (options.run / extract.PODS).is_dir()
    make_folders(options.run)
    if is_new:
        show_recorded_pods(options.state, options.run)
    show_hardware_results(options.state, options.run)
    try:
        take_over(options.run)
        write_shared(options.run / run_folder.VERSIONS / PROGRAM, version("mooring"), mode=0o644)
    except OSError as error:
        # Pods without VFs need neither. Without the version the node offers no VFs.
        _log.error("cannot write the version of this process", reason=str(error))


def _show(options: Options, vf_settings: Callable[[], VfSettingsApi]) -> int:
    if options.output not in ("table", "json"):
        raise ConfigError(f"option output of {PROGRAM}: {options.output!r} is neither 'table' nor 'json'")
    print(show(options.node(vf_settings), as_json=options.output == "json"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
