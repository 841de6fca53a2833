"""Read the files of a host that an installation reads or writes, and their folders, below the host's root folder."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from cli.node.errors import NodeError
from cli.node.kubelet_process import kubelet_process
from cli.node.plan import init_unit, runtime_cni, settings, steps, texts
from cli.node.plan.cni_folder import OURS
from cli.node.plan.kubelet import endpoint
from cli.node.plan.states import CniFolders, File, Host, Link
from mooring.files import ForeignFileError, read_bytes
from mooring.folders import entry_names, record_names
from mooring.gpu.runtime_files import UnreadableError, documents
from mooring.nic.function_devices import all_netdevs
from mooring.nic.host_facts import read_facts
from mooring.nic.vf_users import NO_FACTS, VfDevices, user_of
from mooring.records import ledger

_FILES = (
    *(texts.LINK, texts.RDMA, *texts.RDMA_PACKAGED, init_unit.RULES),
    *(steps.SELINUX, settings.PATH, texts.UDEV, texts.MODULES, texts.NETWORK_MANAGER, texts.NETWORKD),
    *(texts.memlock(unit)[0] for unit in ("containerd.service", "crio.service")),
)
_LEDGER = "/var/lib/mooring/vfs"
_MARKERS = ("/etc/NetworkManager", "/etc/systemd/network")
_UNITS = Path("/etc/systemd/system")
# The limit of links in a path, as in Linux (path_resolution(7)).
_MOST_LINKS = 40


def look(root: Path, further: Iterable[str] = (), kubelet_config: str = "") -> Host:
    """Return the host's files at the paths of an installation and at ``further`` paths; raise OSError."""
    paths = {*_FILES, *further, *_units(root)}
    host = Host(_states(root, paths), kubelet=kubelet_process(root))
    host, paths = _with_kubelet(root, host, kubelet_config, paths)
    host, paths = _with_cni(root, host, kubelet_config, paths)
    return replace(host, folders=frozenset(_folders(root, paths)), used_vfs=frozenset(_used_vfs(root)))


def _with_kubelet(root: Path, host: Host, named: str, paths: set[str]) -> tuple[Host, set[str]]:
    """Add the kubelet's files: those that its unit names, and those that these name. Links are followed."""
    seen: set[str] = set()
    while further := endpoint.paths(host, named) - seen:
        seen |= further
        files = {path for asked in further for path in _asked(root, asked)}
        read = {path: file for path in sorted(files) if (file := _file_behind(root, path)) is not None}
        host, paths = replace(host, found={**host.found, **read}), paths | files
    return host, paths


def _with_cni(root: Path, host: Host, kubelet_config: str, paths: set[str]) -> tuple[Host, set[str]]:
    """Add the runtime's CNI folders with all network configurations, because other programs' files matter there."""
    cni = _cni_folders(root, host, kubelet_config)
    there = below(root, cni.conf, through=True)
    names = {f"{cni.conf}/{name}" for name in entry_names(there, lambda _: True)}
    more = names | {steps.forwarder_path(cni)}
    # Runtimes follow links. A name of ours is kept as it is, because the plan replaces it.
    states = _states(root, more)
    links = [path for path in names if isinstance(states.get(path), Link) and PurePosixPath(path).name not in OURS]
    behind = {path: file for path in links if (file := _file_behind(root, path)) is not None}
    return replace(host, found={**host.found, **states, **behind}, cni=cni), paths | more


def _cni_folders(root: Path, host: Host, kubelet_config: str) -> CniFolders:
    try:
        socket = steps.runtime_socket(host, kubelet_config)
    except NodeError:
        socket = None
    places = [below(root, path, through=True) for path in runtime_cni.config_paths(socket)]
    try:
        return runtime_cni.cni_folders([document for place in places for document in documents(place, root)])
    except UnreadableError as error:
        return CniFolders(why_unknown=f"the runtime's CNI folders are unknown: {error}")


def _states(root: Path, paths: Iterable[str]) -> dict[str, File | Link]:
    return {path: state for path in sorted(paths) if (state := state_of(root, path)) is not None}


def _asked(root: Path, asked: str) -> Iterator[str]:
    """Yield the requested paths: with ``/`` at the end a folder's files, with ``/**`` all below it, else one path."""
    folder = asked.removesuffix("**")
    if not folder.endswith("/"):
        yield asked
        return
    there = below(root, folder, through=True)
    entries = there.rglob("*") if folder != asked else there.iterdir()
    for path in entries if there.is_dir() else ():
        if not path.is_dir():
            yield f"{folder}{path.relative_to(there)}"


def _file_behind(root: Path, path: str) -> File | None:
    """Return the file at a path, following links; a device, such as that of a masked unit, is an empty file."""
    try:
        there = below(root, path, through=True)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return None
    if there.is_file():
        return _read(there)
    return File("") if there.exists() and not there.is_dir() else None


def _used_vfs(root: Path) -> Iterator[str]:
    """Yield the PCI addresses of VFs whose netdevs the host itself uses and no pod has."""
    sysfs, functions = below(root, "/sys"), below(root, "/sys/bus/pci/devices")
    pods = {name.removesuffix(".json") for name in record_names(below(root, _LEDGER), ledger.IS_NAME)}
    names = [path.name for path in functions.iterdir() if (path / "physfn").exists()] if functions.is_dir() else []
    vfs = [VfDevices(pci, netdevs=all_netdevs(functions / pci)) for pci in names if pci not in pods]
    facts = read_facts(sysfs, {}, vfs) if vfs else NO_FACTS
    return (vf.pci for vf in vfs if user_of(vf, facts) is not None)


def state_of(root: Path, path: str) -> File | Link | None:
    """Return the file or link at a path; None for a folder, or if a part of the path is not a folder."""
    there = below(root, path)
    if there.is_symlink():
        return Link(str(there.readlink()))
    return _read(there) if there.is_file() else None


def _read(there: Path) -> File | None:
    """Return a file; None if it is not a regular file, or far too large for a configuration."""
    try:
        content = read_bytes(there)
    except ForeignFileError:
        return None
    if content is None:
        return None
    return File(content.decode(errors="surrogateescape"), stat.S_IMODE(there.stat().st_mode))


def below(root: Path, path: str, *, through: bool = False) -> Path:
    """Return the path below ``root`` of a host's path, with links resolved as on that host.

    ``through`` also follows a link at the end of the path. Raise OSError for a loop of links.
    """
    there, left, followed = root, [*reversed(PurePosixPath(path).parts[1:])], 0
    while left:
        step = there / left.pop()
        if step.name == "..":
            there = there if there == root else there.parent
        elif step.is_symlink() and (left or through):
            followed += 1
            if followed > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(step))
            target = PurePosixPath(step.readlink())
            there, parts = (root, target.parts[1:]) if target.is_absolute() else (there, target.parts)
            left += reversed(parts)
        else:
            there = step
    return there


def _units(root: Path) -> Iterator[str]:
    for kind in ("path", "service", "timer"):
        for link in below(root, str(_UNITS)).glob(f"**/mooring-*.{kind}"):
            yield str(Path("/") / link.relative_to(root))


def _folders(root: Path, paths: Iterable[str]) -> Iterator[str]:
    parents = {str(parent) for path in paths for parent in Path(path).parents}
    return (folder for folder in (*_MARKERS, *parents) if below(root, folder).is_dir())
