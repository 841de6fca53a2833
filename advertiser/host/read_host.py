"""Read a whole host: sysfs, devlink, the ledger, altnames and versions.

A VF can move to a pod during the reads. If the ledger were read first, such a VF would have neither netdev nor holder;
if sysfs were read first, it would be on the host and held. So the ledger is read before and after sysfs, and VFs whose
entry differs are marked unsettled. The change triggers another scan, which reads them again.
"""

import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

from advertiser.host.devlink import ReadModes, read_modes
from advertiser.host.rtnetlink import altnames
from advertiser.host.sysfs import NETNS_MODE, read_attribute, read_functions
from advertiser.inventory.facts import Host, PciFunction
from advertiser.inventory.init_plan import holders
from advertiser.inventory.port import main_netdev
from mooring.annotations.inventory import ADVERTISER, CRI_SHIM, NODE_PROGRAMS
from mooring.errors import RecordError
from mooring.files import read_record
from mooring.folders import read_folder, record_names
from mooring.hardware_folder import read_results
from mooring.nic.host_facts import read_facts
from mooring.nic.pci import is_address
from mooring.nic.vf_users import VfDevices
from mooring.records import (
    extract,
    hardware_result,
    ledger,
    node_check,
    node_install,
    pod_record,
    rates_exchange,
    runtime_handlers,
    shim_bypass,
    vf_faults,
    without_devices,
)
from mooring.records.guid_failures import read_guid_failures
from mooring.records.hardware_result import HardwareResult
from mooring.records.ledger import LedgerEntry, read_ledger_entry
from mooring.records.node_check import NodeCheck, read_node_check
from mooring.records.node_install import NodeInstall, read_node_install
from mooring.records.run_folder import ADVERTISER_VERSION, IN_PREPARATION, VERSIONS, WITHOUT_GUID
from mooring.records.runtime_handlers import read_runtime_handlers
from mooring.records.shim_bypass import ShimBypass, read_shim_bypass
from mooring.records.vf_faults import VfFaults, read_vf_faults
from mooring.records.without_devices import WithoutDevices, read_without_devices

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LONGEST_VERSION = 128
_RECORDS = (ledger.FOLDER, pod_record.FOLDER, hardware_result.FOLDER)
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Roots:
    """The paths of a host's data."""

    sysfs: Path
    state: Path
    run: Path

    @property
    def records(self) -> Path:
        """The folder with ledger and pod records: the extract or, if no CNI server has made one, the records."""
        return self.run / extract.FOLDER if (self.run / extract.VFS).is_dir() else self.state

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders whose files affect the inventory: a change there triggers a scan."""
        records = (root / name for root in (self.state, self.run / extract.FOLDER) for name in _RECORDS)
        public = (self.run / name for name in (VERSIONS, IN_PREPARATION, WITHOUT_GUID, rates_exchange.STATES))
        return (self.run, *public, self.run / extract.FOLDER, *records)


def read_boot_id() -> str:
    """Return the kernel's boot id, which the kubelet also reports as ``status.nodeInfo.bootID``."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def read_host(roots: Roots, modes: ReadModes = read_modes) -> Host:
    """Return the host's facts; raise OSError if the PCI bus or the ledger cannot be read.

    ``modes`` reads devlink. Tests pass their own, because machines without SR-IOV NICs have no modes.
    """
    before = _read_ledger(roots.records)
    functions = read_functions(roots.sysfs)
    uses = read_facts(roots.sysfs, holders(before), _vfs(functions))
    after = _read_ledger(roots.records)
    installs = _node_install(roots.run / node_install.NAME)
    netdevs = (main_netdev(function.netdevs) for function in functions)
    return Host(
        boot=read_boot_id(),
        functions=functions,
        ledger=after,
        unsettled=frozenset(address for address in before.keys() | after if before.get(address) != after.get(address)),
        altnames=altnames(netdev.name for netdev in netdevs if netdev is not None),
        programs=_programs(roots.run, installs),
        preparing=_preparing(roots.run / IN_PREPARATION),
        guid_failures=_guid_failures(roots.run),
        eswitch=modes(roots.sysfs, (function.address for function in functions if function.sriov)),
        without_devices=_without_devices(roots.run / without_devices.NAME),
        rdma_exclusive=read_attribute(roots.sysfs / NETNS_MODE) == "N",
        node_check=_node_check(roots.run / node_check.NAME),
        shim_bypass=_shim_bypass(roots.run / shim_bypass.NAME),
        node_install=installs,
        runtime_handlers=_runtime_handlers(roots.run / runtime_handlers.NAME),
        vf_faults=_vf_faults(roots.run / vf_faults.NAME),
        uses=uses,
        kernel=platform.release(),
        hardware_results=_hardware_results(roots.records / hardware_result.FOLDER),
    )


def _vfs(functions: Iterable[PciFunction]) -> Iterator[VfDevices]:
    return (vf.devices for function in functions for vf in function.vfs.values() if vf.address is not None)


def _read_ledger(state: Path) -> Mapping[str, LedgerEntry | None]:
    """Return the ledger's entries by PCI address, None for unreadable ones; raise OSError if there are too many."""
    found: dict[str, LedgerEntry | None] = {}
    for name, text in read_folder(state / ledger.FOLDER, ledger.IS_NAME):
        if not name and isinstance(text, OSError):
            raise text
        found[name.removesuffix(".json")] = _entry(name, text)
    return found


def _entry(name: str, text: str | OSError) -> LedgerEntry | None:
    try:
        if isinstance(text, OSError):
            raise text
        return read_ledger_entry(text, f"{ledger.FOLDER}/{name}")
    except (OSError, RecordError) as error:
        _log.error("ledger entry cannot be read", pci=name.removesuffix(".json"), reason=str(error))
        return None


def _programs(run: Path, installs: NodeInstall | None) -> dict[str, str]:
    """Return the recorded versions of the programs on this host, by program.

    The shim counts only once the kubelet uses it: not while the cluster installs this node, nor after that failed.
    """
    versions = dict(read_folder(run / VERSIONS, NODE_PROGRAMS.__contains__))
    if installs is not None and installs.phase in ("working", "failed"):
        versions.pop(CRI_SHIM, None)
    with suppress(OSError):
        if (own := read_record(run / ADVERTISER_VERSION)) is not None:
            versions[ADVERTISER] = own
    return {name: version.strip()[:_LONGEST_VERSION] for name, version in versions.items() if isinstance(version, str)}


def _without_devices(path: Path) -> frozenset[WithoutDevices]:
    try:
        text = read_record(path)
        return frozenset() if text is None else read_without_devices(text)
    except (OSError, RecordError) as error:
        _log.error("report of containers without devices cannot be read", reason=str(error))
        return frozenset()


def _node_check(path: Path) -> NodeCheck | None:
    try:
        text = read_record(path)
        return None if text is None else read_node_check(text)
    except (OSError, RecordError) as error:
        return NodeCheck(datetime.now(UTC), "unknown", str(error))


def _node_install(path: Path) -> NodeInstall | None:
    try:
        text = read_record(path)
        return None if text is None else read_node_install(text)
    except (OSError, RecordError) as error:
        _log.error("state of the installation cannot be read", reason=str(error))
        return None


def _runtime_handlers(path: Path) -> frozenset[str] | None:
    try:
        text = read_record(path)
        return None if text is None else read_runtime_handlers(text)
    except (OSError, RecordError) as error:
        _log.error("list of runtime handlers cannot be read", reason=str(error))
        return None


def _shim_bypass(path: Path) -> ShimBypass | None:
    try:
        text = read_record(path)
        return None if text is None else read_shim_bypass(text)
    except (OSError, RecordError) as error:
        return ShimBypass("", str(error))


def _vf_faults(path: Path) -> VfFaults | None:
    try:
        text = read_record(path)
        return None if text is None else read_vf_faults(text)
    except (OSError, RecordError) as error:
        _log.error("report of faults cannot be read", reason=str(error))
        return None


def _hardware_results(folder: Path) -> dict[str, HardwareResult]:
    """Return the results that can be read; without one a PF counts as not tested."""
    found: dict[str, HardwareResult] = {}
    for pci, result in read_results(folder).items():
        if isinstance(result, HardwareResult):
            found[pci] = result
        else:
            _log.error("result of a hardware test cannot be read", pci=pci, reason=str(result))
    return found


def _guid_failures(run: Path) -> Mapping[str, str]:
    try:
        return read_guid_failures(run)
    except OSError as unreadable:
        _log.error("report of VFs without a GUID cannot be read", reason=str(unreadable))
        return {}


def _preparing(folder: Path) -> frozenset[str]:
    return frozenset(record_names(folder, is_address))
