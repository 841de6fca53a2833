"""Write what `assess` has read as an archive without identities, and read it again: the form of a support bundle.

Beside the lists the archive has `mooring-support/nodes/NODE.tar.gz`: the captures, with stand-ins.
"""

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from advertiser.formats import capture_record, use_record
from advertiser.host.capture import Content, pack
from cli.plugin.assess.collect import KINDS, OpenArchive
from cli.plugin.assess.node_archives import MOST_RECORD_BYTES, opened_members
from cli.plugin.assess.snapshot import Snapshot
from cli.plugin.assess.stand_ins import StandIns
from cli.plugin.bundle.archive import BundleWriter, reading, writing
from cli.plugin.bundle.layout import (
    FOLDER,
    MANIFEST,
    MOST_PAGE_ITEMS,
    PAGE_BYTES,
    README,
    ListResult,
    Manifest,
    page_member,
)
from cli.plugin.bundle.source import BundleSource

_NODES = f"{FOLDER}/nodes"
_RECORDS = (capture_record.FILE, use_record.FILE)
README_TEXT = """\
What `kubectl mooring assess --share` has read of a cluster, without what identifies it.

manifest.json   when it was read, and which lists could not be read
api/            nodes, pods, workloads, networks, claims, and what the scheduler decides by
nodes/          the captures of nodes: sysfs of NICs, settings and use of VFs, devices of pods

Names of objects, labels, addresses, uids and boot ids are stand-ins, equal ones for equal texts. Removed are
environments, commands, images, messages, addresses of nodes and pods, and all annotations except those that Mooring
reads. Kept are words of Kubernetes, well-known keys, PCI addresses, names of interfaces and drivers that the kernel
gives, domains of vendors' resources, times, amounts and other numbers.

    kubectl mooring assess --from THIS-FILE
"""


def write_shared(file: str, snapshot: Snapshot, archives: list[tuple[str, OpenArchive]], version: str) -> None:
    """Write the archive; raise BundleError or OSError."""
    stand_ins = StandIns()
    with writing(Path(file), int(snapshot.now)) as writer:
        writer.add(README, README_TEXT.encode())
        results = {path: _add_list(writer, path, snapshot, stand_ins) for path in KINDS}
        for node, opened in archives:
            if node in snapshot.captures:
                with opened() as capture:
                    writer.add(f"{_NODES}/{stand_ins.text(node)}.tar.gz", _without_identities(capture, stand_ins))
        manifest = Manifest(snapshot.now, "", "default", version, results, [], [])
        writer.add(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))


def _add_list(writer: BundleWriter, path: str, snapshot: Snapshot, stand_ins: StandIns) -> ListResult:
    if path not in snapshot.lists:
        return ListResult(KINDS[path], code=404, reason="NotFound")
    objects = snapshot.lists[path]
    if objects is None:
        return ListResult(KINDS[path], code=403, reason="Forbidden")
    number, page, size = 0, list[bytes](), 0
    for at, item in enumerate(objects, start=1):
        page.append(msgspec.json.encode(stand_ins.object(item)))
        size += len(page[-1])
        if size > PAGE_BYTES or len(page) == MOST_PAGE_ITEMS or at == len(objects):
            number += 1
            writer.add(page_member(path, number), b"[" + b",".join(page) + b"]")
            page, size = [], 0
    return ListResult(KINDS[path], pages=number)


def _without_identities(capture: IO[bytes], stand_ins: StandIns) -> bytes:
    contents: dict[str, Content] = {}
    with opened_members(capture) as members:
        for member in members:
            path = "/".join(stand_ins.entry(part) for part in member.name.split("/"))
            if member.issym():
                contents[path] = "/".join(stand_ins.entry(part) for part in member.linkname.split("/"))
            elif member.isreg():
                contents[path] = _content(members, member, stand_ins)
            else:
                contents[path] = None
    return pack(contents)


def _content(members: tarfile.TarFile, member: tarfile.TarInfo, stand_ins: StandIns) -> bytes:
    file = members.extractfile(member)
    content = file.read(MOST_RECORD_BYTES) if file is not None else b""
    if member.name in _RECORDS:
        return stand_ins.record(member.name, content.decode(errors="replace")).encode()
    return stand_ins.content(member.name.rpartition("/")[2], content)


@contextmanager
def opened_shared(file: str) -> Iterator[tuple[BundleSource, list[tuple[str, OpenArchive]]]]:
    """Open such an archive: the API's lists, and the captures of nodes; raise BundleError."""
    with reading(Path(file)) as bundle:
        prefix, suffix = f"{_NODES}/", ".tar.gz"
        members = [name for name in bundle.names() if name.startswith(prefix) and name.endswith(suffix)]

        def opener(name: str) -> OpenArchive:
            return lambda: io.BytesIO(bundle.read(name))

        yield BundleSource(bundle), [(name[len(prefix) : -len(suffix)], opener(name)) for name in sorted(members)]
