"""Pack the files that discovery reads on a host into an archive; discovery gives the same result on any machine.

    sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/...   every NIC, its VFs, the bridges above
    sys/bus/pci/..., sys/class/...                         the kernel's own links to them
    captured.json                                          what sysfs does not show (`formats/capture_record.py`)
    use.json                                               with --uses: VFs' settings and use (`formats/use_record.py`)

The archive contains only files that ``_ALLOWLIST`` names: no MAC, GUID, serial number, VPD or configuration space,
except that a netdev's name can contain its MAC. A node GUID is included only if it is a default that VFs have before
they get their own. Most drivers derive ``phys_switch_id`` and ``sys_image_guid`` from a MAC or GUID; the archive
replaces them by numbers, so that equal ones stay equal. A file that the kernel does not let us read (speed without a
link: EINVAL) becomes an empty folder of the same name: it exists, and is unreadable. Equal hosts give archives that
are equal byte for byte.
"""

import gzip
import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from advertiser.formats import use_record
from advertiser.formats.capture_record import FILE, dump_capture_record, restore_record
from advertiser.formats.use_record import NodeUse, dump_use
from advertiser.host.sysfs import read_functions
from advertiser.inventory.facts import Host
from mooring.files import read_file
from mooring.nic import node_guid
from mooring.nic.pci import is_address

# An attribute is at most a page (Documentation/filesystems/sysfs.rst).
_PAGE = 4096
Allowlist: TypeAlias = Mapping[str, "Allowlist"]


def _allowed_names(names: str) -> Allowlist:
    return {name: {} for name in names.split()}


# Globs in the structure of sysfs. Links stay links; of a folder only the entries named below it are included.
_BRIDGE = _allowed_names("class vendor device numa_node")
_NETDEV = _allowed_names(
    "type speed operstate carrier dev_port phys_port_name phys_switch_id ifindex iflink parent bonding_slave device"
)
_PORT = _allowed_names("link_layer rate state")
_RDMA: Allowlist = {**_allowed_names("device node_type node_guid sys_image_guid"), "ports": {"*": _PORT}}
_CLASSES: Allowlist = {
    "net": {"*": _NETDEV},
    "infiniband": {"*": _RDMA},
    "infiniband_verbs": {"*": _allowed_names("device ibdev")},
}
_SRIOV = _allowed_names("sriov_totalvfs sriov_numvfs sriov_offset sriov_stride sriov_vf_device sriov_drivers_autoprobe")
_ALLOWLIST: Allowlist = {**_BRIDGE, **_SRIOV, **_CLASSES, **_allowed_names("driver physfn virtfn* sriov")}
_NUMBERED = frozenset({"phys_switch_id", "sys_image_guid"})
_NODE_GUID = "node_guid"
_ALPHANUMERIC = re.compile(rb"[0-9A-Za-z]")

# The content of a file, the target of a link, None for a folder.
Content: TypeAlias = bytes | str | None


def capture(sysfs: Path, host: Host, archive: Path) -> int:
    """Read the host's sysfs tree and write the archive; return its size in bytes. Raise OSError."""
    packed = pack_capture(sysfs, host)
    archive.write_bytes(packed)
    return len(packed)


def pack_capture(sysfs: Path, host: Host, use: NodeUse | None = None) -> bytes:
    """Read the host's sysfs tree and return the archive; raise OSError."""
    contents: dict[str, Content] = {f"sys/{path}": content for path, content in tree(sysfs)}
    contents[FILE] = dump_capture_record(host).encode()
    if use is not None:
        contents[use_record.FILE] = dump_use(use).encode()
    return pack(contents)


def with_capture_record(host: Host, sysfs: Path) -> Host:
    """Return the host with the data of the record beside its tree, if there is one; raise RecordError or OSError."""
    text = read_file(sysfs.parent / FILE)
    return host if text is None else restore_record(host, text)


def tree(sysfs: Path) -> Iterator[tuple[PurePosixPath, Content]]:
    """Yield path (below the root) and content of each captured entry; raise SysfsError without a PCI bus."""
    root = sysfs.resolve()
    numbers: dict[bytes, int] = {}
    yield PurePosixPath("bus/pci/devices"), None
    for function in read_functions(root):
        folder = root / "bus/pci/devices" / function.address
        vfs = (folder / f"virtfn{index}" for index, vf in function.vfs.items() if vf.exists)
        for path in (folder, *vfs):
            for taken, content in _function(root, path.resolve()):
                is_numbered = taken.name in _NUMBERED and isinstance(content, bytes)
                yield PurePosixPath(taken.relative_to(root)), _numbered(content, numbers) if is_numbered else content


def _numbered(identity: Content, numbers: dict[bytes, int]) -> Content:
    """Replace the digits of an identity by its number, padded to the same length; zeros stay, as they mean "none"."""
    assert isinstance(identity, bytes)
    digits = b"".join(_ALPHANUMERIC.findall(identity)).lower()
    if not digits.strip(b"0"):
        return identity
    number = b"%0*x" % (len(digits), numbers.setdefault(digits, len(numbers) + 1))
    left = iter(number[-len(digits) :].decode())
    return _ALPHANUMERIC.sub(lambda _: next(left).encode(), identity)


def _function(root: Path, folder: Path) -> Iterator[tuple[Path, Content]]:
    yield from _take(folder, _ALLOWLIST)
    drivers = root / "bus/pci/drivers"
    if (folder / "driver").is_symlink():
        yield drivers / (folder / "driver").readlink().name, None
    for kind in _CLASSES:
        for device in _entries(folder / kind):
            yield from _link(root / "class" / kind / device.name)
    for part in (folder, *folder.parents):
        if is_address(part.name):
            yield from _link(root / "bus/pci/devices" / part.name)
            yield from _take(part, _BRIDGE)


def _take(path: Path, kept: Allowlist) -> Iterator[tuple[Path, Content]]:
    if path.is_symlink():
        yield from _link(path)
    elif path.is_dir():
        yield path, None
        for child in _entries(path):
            below = next((below for glob, below in kept.items() if fnmatchcase(child.name, glob)), None)
            if below is not None:
                yield from _take(child, below)
    else:
        yield from _file(path)


def _link(path: Path) -> Iterator[tuple[Path, Content]]:
    if path.is_symlink():
        yield path, str(path.readlink())


def _file(path: Path) -> Iterator[tuple[Path, Content]]:
    try:
        with path.open("rb") as file:
            content = file.read(_PAGE)
    except FileNotFoundError:
        # The entry was removed after its folder was listed.
        return
    except OSError:
        yield path, None
        return
    yield path, _mask(path.name, content)


def _mask(name: str, content: bytes) -> bytes:
    """Mask the digits of a node GUID that a VF has of its own: the capture shows only that it has one."""
    if name == _NODE_GUID and not node_guid.is_missing(content.decode(errors="replace").strip()):
        return _ALPHANUMERIC.sub(b"x", content)
    return content


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def pack(contents: Mapping[str, Content]) -> bytes:
    """Return an archive of these entries by their paths."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for path, content in sorted(contents.items()):
            member, data = _member(path, content)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def _member(path: str, content: Content) -> tuple[tarfile.TarInfo, bytes]:
    """Return the archive member, owned by root and without a time, and its data."""
    member = tarfile.TarInfo(path)
    if isinstance(content, bytes):
        member.size, member.mode = len(content), 0o644
        return member, content
    member.mode = 0o755
    if content is None:
        member.type = tarfile.DIRTYPE
    else:
        member.type, member.linkname = tarfile.SYMTYPE, content
    return member, b""
