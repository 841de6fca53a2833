"""mooring-advertiser: publish what this node offers, print it, or capture it for another machine."""

import asyncio
import base64
import os
import platform
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from rich.console import Console

from advertiser.formats.install_condition import TYPE as INSTALL_FAILED
from advertiser.formats.vf_condition import TYPE as VFS_IMPAIRED
from advertiser.host.capture import pack_capture, with_capture_record
from advertiser.host.gpu.documents import GpusFile
from advertiser.host.gpu.read_gpus import GpuSources
from advertiser.host.host_events import HostEvents
from advertiser.host.node_use import read_node_use
from advertiser.host.offer_file import OfferFile
from advertiser.host.read_host import Roots, read_boot_id, read_host
from advertiser.init.bind_requests import BindRequests
from advertiser.init.hand_over import NotPreparedError, await_init, hand_over
from advertiser.init.init_run import InitRun
from advertiser.init.offer_sources import HandedOffer, OperatorsOffer
from advertiser.init.prepare_pf import PfPreparer, mark_ready
from advertiser.init.progress import ProgressDisplay
from advertiser.init.rdma_netns_mode import RebootNeededError, ensure_mode
from advertiser.inventory.build_inventory import build_inventory
from advertiser.inventory.facts import ClusterFacts
from advertiser.inventory.matching import entry_matches
from advertiser.inventory.offer import Offer
from advertiser.inventory.shared_vlans import shared_vlans
from advertiser.publish.cluster_view import ClusterView
from advertiser.publish.http_pages import serve_http
from advertiser.publish.metrics import Metrics
from advertiser.publish.network_status_writer import NetworkStatusWriter
from advertiser.publish.node_condition_writer import NodeConditionWriter
from advertiser.publish.node_resources import NodeResources
from advertiser.publish.once import publish_inventory
from advertiser.publish.policy_check import PolicyCheck
from advertiser.publish.publisher import Publisher, patch_gpu_inventory, patch_rates_in_force
from advertiser.publish.rates_handover import RatesHandOver, withdraw_rates
from advertiser.publish.scan_loop import Publishers, ScanLoop
from advertiser.publish.scanner import Scanner
from advertiser.publish.shim_condition_writer import ShimConditionWriter
from advertiser.publish.vf_event_reporter import VfEventReporter
from advertiser.show import as_json, print_table
from mooring.errors import ContractError
from mooring.gpu.cdi_folders import DEFAULT_FOLDERS, cdi_folders
from mooring.gpu.runtime_files import DEFAULT_RUNTIME, DEFAULT_TOOLKIT, RuntimeFiles
from mooring.kube.access import AccessError, load_access
from mooring.kube.client import Client
from mooring.kube.failures import KubeError
from mooring.nic.vf_settings import RtnetlinkVfSettings, VfSettingsSelector
from mooring.program import log
from mooring.program.config import ConfigError, host_and_port, load, option

PROGRAM = "mooring-advertiser"
COMMANDS = ("serve", "init", "hand-over", "show", "once", "capture")
MODPROBE = Path("/etc/modprobe.d/mooring-rdma.conf")
DEFAULT_OFFER = Path("/etc/mooring/offer.yaml")
DEFAULT_GPUS = Path("/etc/mooring/gpus.yaml")
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Config:
    """Publish this node's PFs and VFs in its inventory annotation: serve (until stopped) or once.

    show prints what the node offers, capture packs it into an archive. init makes the VFs that the offer names;
    hand-over gives the offer to the init of the host and waits until it is done.
    """

    kubeconfig: str = option(
        "", "kubeconfig file; if empty: KUBECONFIG, then the pod's service account, then ~/.kube/config"
    )
    node_name: str = option("", "this node's name; if empty: the host name in lower case")
    sysfs: Path = option(Path("/sys"), "where sysfs is mounted")
    state: Path = option(
        Path("/var/lib/mooring"), "folder of the node's records; serve reads their extract in the run folder"
    )
    run: Path = option(Path("/run/mooring"), "folder for files that last until the next boot")
    getpfs_addr: str = option(":54005", "host:port of /getpfs, /metrics, /healthz and /readyz; if empty: none")
    offer: Path = option(DEFAULT_OFFER, "file of the offer; without it, every PF whose VFs have RDMA is on offer")
    handed_over: bool = option(False, "init: use the offer that hand-over has written into the state folder")
    gpus: bool = option(False, "show and publish the node's GPUs, too, as mooring.dev/inventory.gpu")
    gpus_file: Path = option(DEFAULT_GPUS, "file with facts about GPUs that no other source reports; optional")
    proc: Path = option(Path("/proc"), "where procfs is mounted; NVIDIA's driver describes its GPUs there")
    cdi: str = option(DEFAULT_FOLDERS, "folders of CDI specifications; later ones take precedence")
    runtime_config: str = option(DEFAULT_RUNTIME, "files and folders of the container runtime's configuration")
    nvidia_runtime_config: Path = option(Path(DEFAULT_TOOLKIT), "configuration of NVIDIA's container runtime")
    network_status: bool = option(False, "write pods' VFs into their annotation network-status")
    rates: bool = option(False, "let the rates of this node's running pods change; needs the right to watch its pods")
    resync: float = option(60.0, "seconds without an event after which the host is scanned again")
    modprobe: Path = option(MODPROBE, "modprobe file that init writes if changing the RDMA mode needs a reboot")
    output: str = option("table", "output format of show: table or json", short="o")
    archive: str = option(
        "", "file that capture writes; if empty: mooring-<node>.tar.gz here; - is standard output, as base64"
    )
    uses: bool = option(False, "capture also how VFs are set and used, for `kubectl mooring assess`")
    kubelet: Path = option(Path("/var/lib/kubelet"), "the kubelet's root folder; capture --uses reads its checkpoint")

    @property
    def node(self) -> str:
        return self.node_name or platform.node().lower()

    @property
    def roots(self) -> Roots:
        return Roots(self.sysfs, self.state, self.run)

    def scanner(self) -> Scanner:
        """Return a scanner; raise ContractError or OSError if the offer or the GPU file cannot be used."""
        offer = OfferFile(self.offer, required=self.offer != DEFAULT_OFFER)
        return Scanner(self.roots, offer, self.node, self._gpu_sources())

    @property
    def gpu_folders(self) -> tuple[Path, ...]:
        """The folders whose files describe GPUs: a change there triggers a scan. Empty without ``gpus``."""
        return (*map(Path, filter(None, self.cdi.split(":"))), self.gpus_file.parent) if self.gpus else ()

    def _gpu_sources(self) -> GpuSources | None:
        if not self.gpus:
            return None
        file = GpusFile(self.gpus_file, required=self.gpus_file != DEFAULT_GPUS)
        runtime = tuple(map(Path, filter(None, self.runtime_config.split(":"))))
        files = RuntimeFiles(runtime, self.nvidia_runtime_config)
        return GpuSources(self.sysfs, self.proc, cdi_folders(self.cdi), file, runtime=files)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    try:
        command, config = load(Config, PROGRAM, sys.argv[1:] if argv is None else argv, os.environ, COMMANDS)
        _check(config)
    except ConfigError as wrong:
        print(f"{PROGRAM}: {wrong}", file=sys.stderr)
        return 2
    log.set_up(PROGRAM)
    try:
        if command == "show":
            return _show(config)
        if command == "capture":
            _capture(config)
        elif command == "init":
            return _init(config)
        elif command == "hand-over":
            text = hand_over(config.state, config.offer, required=config.offer != DEFAULT_OFFER)
            await_init(config.state, config.run, text)
        else:
            asyncio.run(_once(config) if command == "once" else _serve(config))
    except (AccessError, KubeError, ContractError, NotPreparedError, OSError) as error:
        _log.error("advertiser ends", node=config.node, reason=str(error))
        return 1
    return 0


def _check(config: Config) -> None:
    if config.output not in ("table", "json"):
        raise ConfigError(f"flag --output of {PROGRAM}: {config.output!r} is neither table nor json")
    if config.resync <= 0:
        raise ConfigError(f"flag --resync of {PROGRAM}: {config.resync!r} is not above 0")
    host_and_port(config.getpfs_addr or ":0")


def _show(config: Config) -> int:
    """Print what the node offers; return 1 if --offer names a file of which an entry matches no PF."""
    host, scanner = with_capture_record(read_host(config.roots), config.sysfs), config.scanner()
    offer = scanner.offer.offer()
    found = build_inventory(host, offer, ClusterFacts(), config.node)
    entries = [] if config.offer == DEFAULT_OFFER else list(entry_matches(host, offer, config.node))
    gpus = None if scanner.gpus is None else scanner.gpus.inventory(config.node)
    warnings = list(shared_vlans(offer))
    if config.output == "json":
        print(as_json(found, config.node, gpus, entries, warnings))
    else:
        # A pipe has no width, and wrapped lines cannot be searched.
        console = Console(width=None if sys.stdout.isatty() else 160)
        print_table(found, config.node, console, gpus, entries, warnings)
    return 1 if any(entry.fault for entry in entries) else 0


def _capture(config: Config) -> None:
    host, use = read_host(config.roots), None
    if config.uses:
        settings = VfSettingsSelector(RtnetlinkVfSettings(), config.sysfs)
        use = read_node_use(host, settings, config.sysfs, config.proc, config.kubelet, time.time())
    packed = pack_capture(config.sysfs, host, use)
    if config.archive == "-":
        # A pod's log is text.
        print(base64.encodebytes(packed).decode("ascii"), end="")
        return
    archive, size = Path(config.archive or f"mooring-{config.node}.tar.gz"), len(packed)
    archive.write_bytes(packed)
    command = f"`{PROGRAM} show --sysfs FOLDER/sys`"
    print(f"{archive}: {size} bytes. Unpack it in FOLDER and run {command} to get the same output")


def _init(config: Config) -> int:
    """Prepare the PFs that the offer names and show progress; return the exit status, 1 if a PF failed."""
    operators = OperatorsOffer(config.offer, required=config.offer != DEFAULT_OFFER)
    source = HandedOffer(config.state) if config.handed_over else operators
    run = InitRun(source, BindRequests(config.run), lambda offer: _prepare(config, offer), time.sleep)
    return 0 if run.run() else 1


def _prepare(config: Config, offer: Offer) -> Sequence[object]:
    with ProgressDisplay() as display:
        failures = PfPreparer(config.roots, RtnetlinkVfSettings(), display.update).prepare_all(offer, config.node)
    try:
        if offer.rdma_netns is not None:
            ensure_mode(offer.rdma_netns, config.sysfs, config.modprobe)
    except RebootNeededError as error:
        _log.error("RDMA mode not set", node=config.node, reason=str(error))
        return (*failures, error)
    if not failures:
        mark_ready(config.run, read_boot_id())
    return failures


async def _once(config: Config) -> None:
    scanner = config.scanner()
    async with Client(load_access(config.kubeconfig or None)) as client:
        await publish_inventory(client, scanner)


async def _serve(config: Config) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    scanner = config.scanner()
    access = await asyncio.to_thread(load_access, config.kubeconfig or None)
    async with Client(access) as client:
        with HostEvents((*scanner.roots.folders, config.offer.parent, *config.gpu_folders)) as changes:
            await _work(config, scanner, client, changes, stop)


async def _work(config: Config, scanner: Scanner, client: Client, changes: HostEvents, stop: asyncio.Event) -> None:
    metrics = Metrics()
    publisher = Publisher(client, config.node, metrics.count_patch)
    in_force = Publisher(client, config.node, changes.notify, patch_rates_in_force)
    rates = RatesHandOver(client, config.node, config.run, in_force, changes.notify) if config.rates else None
    if rates is None:
        in_force.set_desired_state("")
        withdraw_rates(config.run)
    publishers = Publishers(
        publisher,
        NodeResources(client, config.node),
        VfEventReporter(client, config.node),
        Publisher(client, config.node, patch=patch_gpu_inventory) if config.gpus else None,
        NetworkStatusWriter(client) if config.network_status else None,
        ShimConditionWriter(client, config.node, metrics),
        rates,
        NodeConditionWriter(client, config.node, VFS_IMPAIRED),
        NodeConditionWriter(client, config.node, INSTALL_FAILED),
    )
    view = ClusterView(
        client,
        config.node,
        publisher,
        publishers.resources,
        changes.notify,
        publishers.gpus,
        in_force,
        publishers.conditions(),
    )
    scan_loop = ScanLoop(scanner, view, publishers, metrics=metrics)
    async with serve_http(config.getpfs_addr, scan_loop, publisher, config.resync), asyncio.TaskGroup() as group:
        policy = PolicyCheck(client, config.node, metrics)
        watches = (view.follow_node(), policy.run(), scan_loop.run(changes, config.resync))
        work = (*watches, *publishers.run_all(), in_force.run())
        tasks = [group.create_task(coroutine) for coroutine in work]
        _log.info("advertiser serves", node=config.node)
        await stop.wait()
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    sys.exit(main())
