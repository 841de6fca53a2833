"""The harmless checks: what this host is, by reading files and by commands that change nothing."""

import json
import platform
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cli.node.errors import NodeError
from cli.node.hardware.commands import CommandError, attempt, names_in, run_json, text_of
from cli.node.hardware.plan.addresses import PfAddresses
from cli.node.hardware.plan.checks import Answer
from cli.node.hardware.plan.report import Subject
from mooring.annotations.inventory import ADVERTISER, Inventory, Pf, read_inventory
from mooring.errors import AnnotationError
from mooring.indexes import Indexes
from mooring.nic.function_devices import own_netdevs, own_rdma_devices
from mooring.nic.settings import VfSettings
from mooring.nic.vf_settings import VfSettingsApi
from mooring.records.run_folder import ADVERTISER_VERSION, VERSIONS

# By the kernel's name of a process, which has 15 characters.
_AGENTS = frozenset(
    {"NetworkManager", "systemd-network", "wickedd", "dhcpcd", "lldpad", "ovs-vswitchd", "ovsdb-server", "opensm"}
    | {"sriov-network-c", "sriov-device-pl", "sriovdp", "k8s-rdma-shared", "rdma-shared-dp", "multus-daemon"}
    | {"cilium-agent", "calico-node", "libvirtd", "virtqemud", "mooring-adverti", "mooring-cni", "mooring-cri-shi"}
)
_AGENT_FILES = ("etc/sriov-operator", "etc/infiniband/openib.conf", "etc/mellanox", "etc/network/interfaces")
_RULES = ("etc/udev/rules.d", "run/udev/rules.d", "lib/udev/rules.d", "usr/lib/udev/rules.d")
_UDEV_KEYS = ("ID_NET_NAMING_SCHEME", "ID_NET_LINK_FILE", "ID_NET_NAME", "ID_RENAMING", "NM_UNMANAGED", "MOORING_VF")
_UNITS = ("containerd.service", "crio.service", "kubelet.service")
_MODULES = ("ib_core", "ib_uverbs", "rdma_ucm", "ib_ipoib", "vfio_pci")
_UNKNOWN = "unknown"
# The document of `mooring-advertiser show`.
Shown = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """The PF that is tested, in the host's tree below ``root``; ``state`` and ``run`` are Mooring's folders there."""

    root: Path
    pf: Pf
    settings: VfSettingsApi
    state: Path
    run: Path
    addresses: PfAddresses

    @property
    def function(self) -> Path:
        return self.device(self.pf.pci)

    def device(self, pci: str) -> Path:
        return self.root / "sys/bus/pci/devices" / pci

    @property
    def netdev(self) -> Path:
        return self.function / "net" / self.pf.name


def discover() -> dict[str, Any]:
    """Return what mooring-advertiser shows of this host; raise CommandError."""
    document = run_json((sys.executable, "-m", "advertiser", "show", "--output", "json"))
    if not isinstance(document, dict):
        raise CommandError(f"mooring-advertiser show: {document!r}")
    return document


def find_pf(document: Shown, name: str, *, force: bool = False) -> Pf:
    """Return the PF with this name, without one the first on offer; raise NodeError if there is none.

    With ``force`` a NIC that is not on offer may be named, by netdev or PCI address. It is returned without VFs: only
    the harmless checks ask it.
    """
    try:
        inventory = read_inventory(json.dumps(document["inventory"]))
    except AnnotationError as wrong:
        raise NodeError(f"mooring-advertiser show: {wrong}") from wrong
    pf_found = inventory.pf(name) if name else _first(inventory)
    if pf_found is not None:
        return pf_found
    left_out = [left for left in document["left_out"] if name in ("", left["name"], left["pci"])]
    if left_out and name and force:
        return Pf(left_out[0]["name"] or "", left_out[0]["pci"], "ethernet", "", 0, 0, up=False, vfs=Indexes())
    if left_out:
        reasons = "; ".join(f"{left['name'] or left['pci']}: {left['why']}" for left in left_out)
        fault = f"PF {name!r} is not on offer" if name else "no PF of this host is on offer"
        raise NodeError(f"{fault} ({reasons}): with --pf and --force the harmless checks are asked all the same")
    raise NodeError(f"this host has no PF {name!r}" if name else "this host has no NIC with SR-IOV")


def _first(inventory: Inventory) -> Pf | None:
    usable = [pf for pf in inventory.pfs if pf.usable]
    return next(iter((*usable, *inventory.pfs)), None)


def addresses_of(pf: Pf) -> PfAddresses:
    """Return addresses for the test, made from the PF's permanent MAC, on InfiniBand from its node GUID.

    A bond changes the MAC of its PFs, and not the permanent one, which ``ip`` shows where it is another. An IPoIB
    address changes with the driver's start. A PF with neither is known by its place in this machine.
    """
    if pf.link == "infiniband":
        address = text_of(Path("/sys/class/infiniband") / str(pf.rdma) / "node_guid")
    else:
        links = run_json(("ip", "-j", "link", "show", pf.name)) if pf.name else None
        address = next((link.get("permaddr") or link.get("address") for link in links or ()), None)
    return PfAddresses(address or f"{text_of(Path('/etc/machine-id'))} {pf.pci}")


def subject_of(target: Target) -> Subject:
    """Return what names the report."""
    info = _ethtool(target.pf.name)
    return Subject(
        vendor=_hex(target, "vendor"),
        device=_hex(target, "device"),
        driver=_link(target.function / "driver") or _UNKNOWN,
        firmware=info.get("firmware-version", "").partition(" ")[0],
        link=target.pf.link,
        mbps=target.pf.mbps,
        kernel=platform.release(),
        machine=platform.machine(),
        mooring=version("mooring"),
    )


def ask(target: Target, document: Mapping[str, Any]) -> Iterator[Answer]:
    """Yield the answers of the harmless checks; one that fails does not stop the others."""
    checks: Mapping[str, Callable[[Target], Answer]] = {
        "host.kernel": _kernel,
        "host.nic": _nic,
        "host.discovery": lambda target: _discovery(target, document),
        "host.switch-mode": _switch_mode,
        "host.ports": _ports,
        "host.settings-reported": _settings_reported,
        "host.pci": _pci,
        "host.rdma-mode": _rdma_mode,
        "host.rdma-users": _rdma_users,
        "host.limits": _limits,
        "host.udev": _udev,
        "host.agents": _agents,
    }
    for check, function in checks.items():
        try:
            yield function(target)
        except (NodeError, OSError) as error:
            yield Answer(check, "not asked", {}, str(error))


def _kernel(target: Target) -> Answer:
    system = text_of(target.root / "etc/os-release") or ""
    pretty = next((line[12:].strip('"') for line in system.splitlines() if line.startswith("PRETTY_NAME=")), "")
    programs = {name: text_of(target.run / VERSIONS / name) for name in names_in(target.run / VERSIONS)}
    programs |= (
        {ADVERTISER: advertiser_version} if (advertiser_version := text_of(target.run / ADVERTISER_VERSION)) else {}
    )
    options = (text_of(target.root / "proc/cmdline") or "").split()
    kernel_options = [
        option for option in options if option.partition("=")[0] in ("iommu", "intel_iommu", "amd_iommu", "net.ifnames")
    ]
    facts = {"release": platform.release(), "version": platform.version(), "system": pretty, "options": kernel_options}
    return Answer("host.kernel", "info", {**facts, "programs": programs, "mooring": version("mooring")})


def _nic(target: Target) -> Answer:
    names = ("vendor", "device", "subsystem_vendor", "subsystem_device", "revision")
    facts: dict[str, object] = {name: text_of(target.function / name) for name in names}
    info = _ethtool(target.pf.name)
    module = target.root / "sys/module" / (info.get("driver") or _UNKNOWN) / "version"
    facts |= {"ethtool": {key: info[key] for key in ("driver", "version", "firmware-version") if key in info}}
    facts |= {"module-version": text_of(module), "devlink": _devlink(("dev", "info"), target)}
    return Answer("host.nic", "info", facts)


def _discovery(target: Target, document: Mapping[str, Any]) -> Answer:
    pci = target.pf.pci
    other_reasons = sorted(entry["why"] for entry in document["left_out"] if entry["pci"] != pci)
    why = next((entry["why"] for entry in document["left_out"] if entry["pci"] == pci), "")
    raw: dict[str, Any] = next((entry for entry in document["inventory"]["pfs"] if entry["pci"] == pci), {})
    facts = {"pf": {key: raw[key] for key in raw if key not in ("pci", "vf0", "pcie")}, "left-out": other_reasons}
    if target.pf.usable:
        return Answer("host.discovery", "ok", facts)
    return Answer("host.discovery", "differs", facts, why or "none of its VFs is usable")


def _switch_mode(target: Target) -> Answer:
    eswitch = _devlink(("dev", "eswitch", "show"), target)
    ports = _devlink_ports(target)
    facts = {"eswitch": eswitch, "ports": ports, "switch-id": bool(text_of(target.netdev / "phys_switch_id"))}
    is_switchdev = isinstance(eswitch, Mapping) and eswitch.get("mode") == "switchdev"
    return Answer("host.switch-mode", "differs" if is_switchdev else "ok", facts, "switchdev" if is_switchdev else "")


def _ports(target: Target) -> Answer:
    switch_id = text_of(target.netdev / "phys_switch_id")
    nets = target.root / "sys/class/net"
    netdevs = [
        name
        for name in names_in(nets)
        if switch_id and name != target.pf.name and text_of(nets / name / "phys_switch_id") == switch_id
    ]
    names = ("operstate", "carrier", "speed", "dev_port", "phys_port_name", "mtu", "type")
    facts: dict[str, object] = {name: text_of(target.netdev / name) for name in names}
    facts |= {"same-switch": netdevs, "bonded": (target.netdev / "bonding_slave").exists()}
    up = target.pf.up and target.pf.mbps > 0
    return Answer("host.ports", "ok" if up else "differs", facts, "" if up else "the port is down or its rate unknown")


def _settings_reported(target: Target) -> Answer:
    can = sorted(target.pf.can)
    indexes = list(target.pf.vfs)
    if not indexes:
        return Answer("host.settings-reported", "not asked", {"can": can}, "the PF has no VFs: --make-vfs makes some")
    settings = target.settings.read(target.pf.name, indexes[-1])
    reports = [name for name in VfSettings.__slots__ if getattr(settings, name) is not None]
    # A GUID that was never set is not reported.
    absences = [name for name in can if name not in reports and name != "guid"]
    facts = {"can": can, "reported": reports, "rates-mbps": [settings.min_tx_rate, settings.max_tx_rate]}
    facts |= {name: getattr(settings, name) for name in ("trust", "spoofchk", "link_state", "vlan")}
    facts["mac"] = None if settings.mac is None else ("zero" if set(settings.mac) <= set("0:") else "set")
    why = f"not reported: {', '.join(absences)}" if absences else ""
    return Answer("host.settings-reported", "differs" if absences else "ok", facts, why)


def _pci(target: Target) -> Answer:
    names = ("totalvfs", "numvfs", "offset", "stride", "vf_device", "drivers_autoprobe")
    facts: dict[str, object] = {f"sriov_{name}": text_of(target.function / f"sriov_{name}") for name in names}
    groups: dict[str, int] = {}
    for index in target.pf.vfs:
        group = _link(target.device(target.pf.vf_pci(index)) / "iommu_group")
        if group is not None:
            groups[group] = groups.get(group, 0) + 1
    facts |= {"numa_node": text_of(target.function / "numa_node"), "bridges": len(target.pf.pcie)}
    facts |= {"link-speed": text_of(target.function / "current_link_speed")}
    facts |= {"link-width": text_of(target.function / "current_link_width")}
    facts |= {"pf-iommu-group": _link(target.function / "iommu_group") is not None, "vf-iommu-groups": len(groups)}
    return Answer("host.pci", "info", facts)


def _rdma_mode(target: Target) -> Answer:
    mode = attempt(("rdma", "system", "show")) or ""
    modules = {name: (target.root / "sys/module" / name).is_dir() for name in _MODULES}
    exclusive = "netns exclusive" in mode
    why = "" if exclusive else "pods see each other's RDMA devices"
    return Answer("host.rdma-mode", "ok" if exclusive else "differs", {"system": mode, "modules": modules}, why)


def _rdma_users(target: Target) -> Answer:
    device = target.pf.rdma or next(_rdma_of_vfs(target), None)
    if device is None:
        return Answer("host.rdma-users", "not asked", {}, "neither PF nor VFs have an RDMA device")
    facts: dict[str, object] = {}
    for kind in ("", "qp", "cm_id", "ctx"):
        command = ("rdma", "-j", "resource", "show", *((kind, "link") if kind else ()), device)
        try:
            output = run_json(command)
            facts[kind or "summary"] = output if not kind else len(output or ())
        except CommandError as error:
            facts[kind or "summary"] = str(error)
    return Answer("host.rdma-users", "info", facts)


def _rdma_of_vfs(target: Target) -> Iterator[str]:
    for index in target.pf.vfs:
        yield from own_rdma_devices(target.device(target.pf.vf_pci(index)))


def _limits(target: Target) -> Answer:
    del target
    names = ("LimitMEMLOCK", "LimitNOFILE")
    units: dict[str, object] = {}
    for unit in _UNITS:
        output = attempt(("systemctl", "show", unit, *(f"--property={name}" for name in (*names, "LoadState")))) or ""
        values = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
        if values.get("LoadState") == "loaded":
            units[unit] = {name: values.get(name) for name in names}
    limits = {
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK),
        "nofile": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
    return Answer("host.limits", "info", {"units": units, **{name: list(pair) for name, pair in limits.items()}})


def _udev(target: Target) -> Answer:
    devices = (target.device(target.pf.vf_pci(index)) for index in target.pf.vfs)
    netdev = next((name for device in devices for name in own_netdevs(device)), None)
    output = attempt(("udevadm", "info", "--query=property", f"--path=/sys/class/net/{netdev}")) if netdev else None
    values = dict(line.split("=", 1) for line in (output or "").splitlines() if "=" in line)
    rules = [
        f"{folder}/{name}"
        for folder in _RULES
        for name in names_in(target.root / folder)
        if any(word in (text_of(target.root / folder / name) or "") for word in ("rdma_rename", "NAME=", "sriov_"))
    ]
    facts = {"running": (target.root / "run/udev/control").exists(), "vf": netdev, "rules": rules}
    return Answer("host.udev", "info", {**facts, **{key: values[key] for key in _UDEV_KEYS if key in values}})


def _agents(target: Target) -> Answer:
    processes = {text_of(path / "comm") for path in (target.root / "proc").glob("[0-9]*")}
    files = [path for path in _AGENT_FILES if (target.root / path).exists()]
    return Answer("host.agents", "info", {"processes": sorted(_AGENTS & processes), "files": files})


def _ethtool(netdev: str) -> dict[str, str]:
    output = attempt(("ethtool", "-i", netdev)) or ""
    return dict(line.split(": ", 1) for line in output.splitlines() if ": " in line)


def _devlink(words: tuple[str, ...], target: Target) -> object:
    """Return what devlink tells about the PF, its error where it tells nothing."""
    try:
        output = run_json(("devlink", "-j", *words, f"pci/{target.pf.pci}"))
    except CommandError as error:
        return str(error)
    # By object, then by handle.
    inner: object = next(iter(output.values()), {}) if isinstance(output, dict) else {}
    return next(iter(inner.values()), {}) if isinstance(inner, dict) else {}


def _devlink_ports(target: Target) -> object:
    try:
        output = run_json(("devlink", "-j", "port", "show"))
    except CommandError as error:
        return str(error)
    ports = (output or {}).get("port", {}).items()
    own_ports = [port for handle, port in ports if handle.startswith(f"pci/{target.pf.pci}/")]
    return sorted(str(port.get("flavour", _UNKNOWN)) for port in own_ports)


def _hex(target: Target, name: str) -> str:
    return (text_of(target.function / name) or _UNKNOWN).removeprefix("0x")


def _link(path: Path) -> str | None:
    try:
        return path.readlink().name
    except OSError:
        return None
