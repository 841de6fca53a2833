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


def find_pf(shown: Shown, name: str, *, force: bool = False) -> Pf:
    """Return the PF with this name, without one the first on offer; raise NodeError if there is none.

    With ``force`` a NIC that is not on offer may be named, by netdev or PCI address. It is returned without VFs: only
    the harmless checks ask it.
    """
    try:
        inventory = read_inventory(json.dumps(shown["inventory"]))
    except AnnotationError as wrong:
        raise NodeError(f"mooring-advertiser show: {wrong}") from wrong
    found = inventory.pf(name) if name else _first(inventory)
    if found is not None:
        return found
    left_out = [left for left in shown["left_out"] if name in ("", left["name"], left["pci"])]
    if left_out and name and force:
        return Pf(left_out[0]["name"] or "", left_out[0]["pci"], "ethernet", "", 0, 0, up=False, vfs=Indexes())
    if left_out:
        reasons = "; ".join(f"{left['name'] or left['pci']}: {left['why']}" for left in left_out)
        what = f"PF {name!r} is not on offer" if name else "no PF of this host is on offer"
        raise NodeError(f"{what} ({reasons}): with --pf and --force the harmless checks are asked all the same")
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
        own = text_of(Path("/sys/class/infiniband") / str(pf.rdma) / "node_guid")
    else:
        links = run_json(("ip", "-j", "link", "show", pf.name)) if pf.name else None
        own = next((link.get("permaddr") or link.get("address") for link in links or ()), None)
    return PfAddresses(own or f"{text_of(Path('/etc/machine-id'))} {pf.pci}")


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


def ask(target: Target, shown: Mapping[str, Any]) -> Iterator[Answer]:
    """Yield the answers of the harmless checks; one that fails does not stop the others."""
    asked: Mapping[str, Callable[[Target], Answer]] = {
        "host.kernel": _kernel,
        "host.nic": _nic,
        "host.discovery": lambda target: _discovery(target, shown),
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
    for check, function in asked.items():
        try:
            yield function(target)
        except (NodeError, OSError) as error:
            yield Answer(check, "not asked", {}, str(error))


def _kernel(target: Target) -> Answer:
    system = text_of(target.root / "etc/os-release") or ""
    pretty = next((line[12:].strip('"') for line in system.splitlines() if line.startswith("PRETTY_NAME=")), "")
    programs = {name: text_of(target.run / VERSIONS / name) for name in names_in(target.run / VERSIONS)}
    programs |= {ADVERTISER: own} if (own := text_of(target.run / ADVERTISER_VERSION)) else {}
    options = (text_of(target.root / "proc/cmdline") or "").split()
    kept = [
        option for option in options if option.partition("=")[0] in ("iommu", "intel_iommu", "amd_iommu", "net.ifnames")
    ]
    found = {"release": platform.release(), "version": platform.version(), "system": pretty, "options": kept}
    return Answer("host.kernel", "info", {**found, "programs": programs, "mooring": version("mooring")})


def _nic(target: Target) -> Answer:
    names = ("vendor", "device", "subsystem_vendor", "subsystem_device", "revision")
    found: dict[str, object] = {name: text_of(target.function / name) for name in names}
    info = _ethtool(target.pf.name)
    module = target.root / "sys/module" / (info.get("driver") or _UNKNOWN) / "version"
    found |= {"ethtool": {key: info[key] for key in ("driver", "version", "firmware-version") if key in info}}
    found |= {"module-version": text_of(module), "devlink": _devlink(("dev", "info"), target)}
    return Answer("host.nic", "info", found)


def _discovery(target: Target, shown: Mapping[str, Any]) -> Answer:
    pci = target.pf.pci
    others = sorted(each["why"] for each in shown["left_out"] if each["pci"] != pci)
    why = next((each["why"] for each in shown["left_out"] if each["pci"] == pci), "")
    raw: dict[str, Any] = next((each for each in shown["inventory"]["pfs"] if each["pci"] == pci), {})
    found = {"pf": {key: raw[key] for key in raw if key not in ("pci", "vf0", "pcie")}, "left-out": others}
    if target.pf.usable:
        return Answer("host.discovery", "ok", found)
    return Answer("host.discovery", "differs", found, why or "none of its VFs is usable")


def _switch_mode(target: Target) -> Answer:
    shown = _devlink(("dev", "eswitch", "show"), target)
    ports = _devlink_ports(target)
    found = {"eswitch": shown, "ports": ports, "switch-id": bool(text_of(target.netdev / "phys_switch_id"))}
    is_switchdev = isinstance(shown, Mapping) and shown.get("mode") == "switchdev"
    return Answer("host.switch-mode", "differs" if is_switchdev else "ok", found, "switchdev" if is_switchdev else "")


def _ports(target: Target) -> Answer:
    own = text_of(target.netdev / "phys_switch_id")
    nets = target.root / "sys/class/net"
    sharing = [
        name
        for name in names_in(nets)
        if own and name != target.pf.name and text_of(nets / name / "phys_switch_id") == own
    ]
    names = ("operstate", "carrier", "speed", "dev_port", "phys_port_name", "mtu", "type")
    found: dict[str, object] = {name: text_of(target.netdev / name) for name in names}
    found |= {"same-switch": sharing, "bonded": (target.netdev / "bonding_slave").exists()}
    up = target.pf.up and target.pf.mbps > 0
    return Answer("host.ports", "ok" if up else "differs", found, "" if up else "the port is down or its rate unknown")


def _settings_reported(target: Target) -> Answer:
    can = sorted(target.pf.can)
    indexes = list(target.pf.vfs)
    if not indexes:
        return Answer("host.settings-reported", "not asked", {"can": can}, "the PF has no VFs: --make-vfs makes some")
    found = target.settings.read(target.pf.name, indexes[-1])
    reported = [name for name in VfSettings.__slots__ if getattr(found, name) is not None]
    # A GUID that was never set is not reported.
    missing = [name for name in can if name not in reported and name != "guid"]
    shown = {"can": can, "reported": reported, "rates-mbps": [found.min_tx_rate, found.max_tx_rate]}
    shown |= {name: getattr(found, name) for name in ("trust", "spoofchk", "link_state", "vlan")}
    shown["mac"] = None if found.mac is None else ("zero" if set(found.mac) <= set("0:") else "set")
    why = f"not reported: {', '.join(missing)}" if missing else ""
    return Answer("host.settings-reported", "differs" if missing else "ok", shown, why)


def _pci(target: Target) -> Answer:
    names = ("totalvfs", "numvfs", "offset", "stride", "vf_device", "drivers_autoprobe")
    found: dict[str, object] = {f"sriov_{name}": text_of(target.function / f"sriov_{name}") for name in names}
    groups: dict[str, int] = {}
    for index in target.pf.vfs:
        group = _link(target.device(target.pf.vf_pci(index)) / "iommu_group")
        if group is not None:
            groups[group] = groups.get(group, 0) + 1
    found |= {"numa_node": text_of(target.function / "numa_node"), "bridges": len(target.pf.pcie)}
    found |= {"link-speed": text_of(target.function / "current_link_speed")}
    found |= {"link-width": text_of(target.function / "current_link_width")}
    found |= {"pf-iommu-group": _link(target.function / "iommu_group") is not None, "vf-iommu-groups": len(groups)}
    return Answer("host.pci", "info", found)


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
    found: dict[str, object] = {}
    for kind in ("", "qp", "cm_id", "ctx"):
        command = ("rdma", "-j", "resource", "show", *((kind, "link") if kind else ()), device)
        try:
            said = run_json(command)
            found[kind or "summary"] = said if not kind else len(said or ())
        except CommandError as error:
            found[kind or "summary"] = str(error)
    return Answer("host.rdma-users", "info", found)


def _rdma_of_vfs(target: Target) -> Iterator[str]:
    for index in target.pf.vfs:
        yield from own_rdma_devices(target.device(target.pf.vf_pci(index)))


def _limits(target: Target) -> Answer:
    del target
    names = ("LimitMEMLOCK", "LimitNOFILE")
    units: dict[str, object] = {}
    for unit in _UNITS:
        said = attempt(("systemctl", "show", unit, *(f"--property={name}" for name in (*names, "LoadState")))) or ""
        values = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        if values.get("LoadState") == "loaded":
            units[unit] = {name: values.get(name) for name in names}
    here = {
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK),
        "nofile": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
    return Answer("host.limits", "info", {"units": units, **{name: list(both) for name, both in here.items()}})


def _udev(target: Target) -> Answer:
    devices = (target.device(target.pf.vf_pci(index)) for index in target.pf.vfs)
    netdev = next((name for device in devices for name in own_netdevs(device)), None)
    said = attempt(("udevadm", "info", "--query=property", f"--path=/sys/class/net/{netdev}")) if netdev else None
    values = dict(line.split("=", 1) for line in (said or "").splitlines() if "=" in line)
    rules = [
        f"{folder}/{name}"
        for folder in _RULES
        for name in names_in(target.root / folder)
        if any(word in (text_of(target.root / folder / name) or "") for word in ("rdma_rename", "NAME=", "sriov_"))
    ]
    found = {"running": (target.root / "run/udev/control").exists(), "vf": netdev, "rules": rules}
    return Answer("host.udev", "info", {**found, **{key: values[key] for key in _UDEV_KEYS if key in values}})


def _agents(target: Target) -> Answer:
    processes = {text_of(path / "comm") for path in (target.root / "proc").glob("[0-9]*")}
    files = [path for path in _AGENT_FILES if (target.root / path).exists()]
    return Answer("host.agents", "info", {"processes": sorted(_AGENTS & processes), "files": files})


def _ethtool(netdev: str) -> dict[str, str]:
    said = attempt(("ethtool", "-i", netdev)) or ""
    return dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)


def _devlink(words: tuple[str, ...], target: Target) -> object:
    """Return what devlink tells about the PF, its error where it tells nothing."""
    try:
        said = run_json(("devlink", "-j", *words, f"pci/{target.pf.pci}"))
    except CommandError as error:
        return str(error)
    # By object, then by handle.
    inner: object = next(iter(said.values()), {}) if isinstance(said, dict) else {}
    return next(iter(inner.values()), {}) if isinstance(inner, dict) else {}


def _devlink_ports(target: Target) -> object:
    try:
        said = run_json(("devlink", "-j", "port", "show"))
    except CommandError as error:
        return str(error)
    ports = (said or {}).get("port", {}).items()
    own = [port for handle, port in ports if handle.startswith(f"pci/{target.pf.pci}/")]
    return sorted(str(port.get("flavour", _UNKNOWN)) for port in own)


def _hex(target: Target, name: str) -> str:
    return (text_of(target.function / name) or _UNKNOWN).removeprefix("0x")


def _link(path: Path) -> str | None:
    try:
        return path.readlink().name
    except OSError:
        return None
