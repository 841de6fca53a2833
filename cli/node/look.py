"""Read a host below its root folder: every file that an installation reads or writes, and the folders to them."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from cli.node.plan import cni_folder, kubelet, settings, steps, texts
from cli.node.plan.states import File, Host, Link
from mooring.files import ForeignFileError, read_bytes
from mooring.folders import entry_names, record_names
from mooring.nic.host_facts import netdevs_of, read_facts
from mooring.nic.vf_users import NO_FACTS, VfDevices, user_of
from mooring.records import ledger

# Read whole: the files of others there determine the changes.
_FOLDERS = (cni_folder.FOLDER, *kubelet.DROP_INS)
_FILES = (
    *(kubelet.FLAGS, kubelet.CONFIG, kubelet.INSTANCE, *kubelet.UNITS, *kubelet.ENVIRONMENT),
    *(texts.LINK, texts.RDMA, *texts.RDMA_PACKAGED),
    *(settings.PATH, texts.UDEV, texts.MODULES, texts.NETWORK_MANAGER, texts.NETWORKD, steps.FORWARDER, steps.CURRENT),
    *(f"{steps.HOME}/{name}" for name in ("bin", "lib", "pyvenv.cfg")),
    *(texts.memlock(unit)[0] for unit in ("containerd.service", "crio.service")),
)
_LEDGER = "/var/lib/mooring/vfs"
_MARKERS = ("/etc/NetworkManager", "/etc/systemd/network")
_UNITS = Path("/etc/systemd/system")
# As in Linux (path_resolution(7)).
_MOST_LINKS = 40


def look(root: Path, further: Iterable[str] = ()) -> Host:
    """Return what is at the host's paths, and at ``further`` ones; raise OSError if that cannot be read."""
    paths = {*_FILES, *further, *_listed(root)}
    found = {path: state for path in sorted(paths) if (state := state_of(root, path)) is not None}
    return Host(found, frozenset(_folders(root, paths)), frozenset(_used_vfs(root)))


def _used_vfs(root: Path) -> Iterator[str]:
    """Yield the VFs whose netdevs the host itself uses, and no pod has."""
    sysfs, functions = below(root, "/sys"), below(root, "/sys/bus/pci/devices")
    pods = {name.removesuffix(".json") for name in record_names(below(root, _LEDGER), ledger.IS_NAME)}
    names = [path.name for path in functions.iterdir() if (path / "physfn").exists()] if functions.is_dir() else []
    vfs = [VfDevices(pci, netdevs=netdevs_of(functions / pci)) for pci in names if pci not in pods]
    facts = read_facts(sysfs, {}, vfs) if vfs else NO_FACTS
    return (vf.pci for vf in vfs if user_of(vf, facts) is not None)


def state_of(root: Path, path: str) -> File | Link | None:
    """Return what is at one path; a folder, or a path through something that is not one, counts as nothing."""
    there = below(root, path)
    if there.is_symlink():
        return Link(str(there.readlink()))
    if not there.is_file() or (content := _content(there)) is None:
        return None
    return File(content.decode(errors="surrogateescape"), stat.S_IMODE(there.stat().st_mode))


def _content(path: Path) -> bytes | None:
    """Return what a file holds, None for one that is none, or far too large for a configuration."""
    try:
        return read_bytes(path)
    except ForeignFileError:
        return None


def below(root: Path, path: str, *, through: bool = False) -> Path:
    """Return where a path of the host is: links are resolved on that host, wherever its root folder is mounted.

    ``through`` follows a link at the path's end too. Raise OSError for a loop of links.
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


def _listed(root: Path) -> Iterator[str]:
    for folder in _FOLDERS:
        there = below(root, folder)
        yield from (f"{folder}/{name}" for name in entry_names(there, lambda _: True))
    for kind in ("service", "timer"):
        for link in below(root, str(_UNITS)).glob(f"**/mooring-*.{kind}"):
            yield str(Path("/") / link.relative_to(root))


def _folders(root: Path, paths: Iterable[str]) -> Iterator[str]:
    parents = {str(parent) for path in paths for parent in Path(path).parents}
    return (folder for folder in (*_MARKERS, *parents) if below(root, folder).is_dir())
