"""Pack the files that discovery reads on a host into an archive, which gives the same result on any machine.

    sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/...   every NIC, its VFs, the bridges above
    sys/bus/pci/..., sys/class/...                         the kernel's own links to them
    captured.json                                          what sysfs does not show (`formats/capture_record.py`)

Only what ``_ALLOWLIST`` names is included: no MAC, GUID, serial number, VPD or configuration space, unless a netdev's
name is made of its MAC. A node GUID is included if it is one that a VF has before it has its own. Most drivers make
``phys_switch_id`` and ``sys_image_guid`` of a MAC or GUID. In their place there are numbers, 1 for the first in the
tree, 2 for the next other one, so that equal ones stay equal. A file that the kernel refuses to read (speed without a
link: EINVAL) becomes an empty folder of its name: it exists, and is unreadable. Equal hosts give equal archives, byte
for byte.
"""

import gzip
import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from advertiser.formats.capture_record import FILE, dump_capture_record, restore_record
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


# By glob, in sysfs's own shape: links are kept as links, and of a folder only what is named below it.
_BRIDGE = _allowed_names("class vendor device numa_node")
_NETDEV = _allowed_names(
    "type speed operstate carrier dev_port phys_port_name phys_switch_id parent bonding_slave device"
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

# A file's content, a link's target, or None for a folder.
Content: TypeAlias = bytes | str | None


def capture(sysfs: Path, host: Host, archive: Path) -> int:
    """Write the archive of a host, reading its tree again; return its size in bytes. Raise OSError."""
    contents: dict[str, Content] = {f"sys/{path}": content for path, content in tree(sysfs)}
    contents[FILE] = dump_capture_record(host).encode()
    packed = _pack(contents)
    archive.write_bytes(packed)
    return len(packed)


def with_capture_record(host: Host, sysfs: Path) -> Host:
    """Return a host as captured if a record is beside its tree, else unchanged; raise RecordError or OSError."""
    text = read_file(sysfs.parent / FILE)
    return host if text is None else restore_record(host, text)


def tree(sysfs: Path) -> Iterator[tuple[PurePosixPath, Content]]:
    """Yield the captured part of a sysfs tree, by path below its root; raise SysfsError without a PCI bus."""
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
    """Return an identity with its number in place of its digits, and as many of them; zeros stay, they mean none."""
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
        # Removed since its folder was listed.
        return
    except OSError:
        yield path, None
        return
    yield path, _mask(path.name, content)


def _mask(name: str, content: bytes) -> bytes:
    """Return a node GUID of a VF's own without its digits: the capture shows only that it is one."""
    if name == _NODE_GUID and not node_guid.is_missing(content.decode(errors="replace").strip()):
        return _ALPHANUMERIC.sub(b"x", content)
    return content


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _pack(contents: Mapping[str, Content]) -> bytes:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for path, content in sorted(contents.items()):
            member, data = _member(path, content)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def _member(path: str, content: Content) -> tuple[tarfile.TarInfo, bytes]:
    """Return the archive's member, owned by root and without a time, and its data."""
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
