"""A node's archive comes from anybody: it is read within bounds, and one that cannot be read is skipped."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from cli.plugin.assess import node_archives
from cli.plugin.assess.captured_tree import Folder, Link, add, tree_at
from cli.plugin.assess.collect import captures_of, in_folder
from cli.plugin.assess.node_archives import ArchiveError, node_of, read_capture
from cli.plugin.assess.snapshot import Snapshot


def archive(*members: tuple[str, bytes | str | None]) -> io.BytesIO:
    """Return an archive of files (bytes), links (text) and folders (None)."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
            else:
                member.type = tarfile.DIRTYPE if content is None else tarfile.SYMTYPE
                member.linkname = content or ""
            tar.addfile(member, io.BytesIO(content) if isinstance(content, bytes) else None)
    packed.seek(0)
    return packed


@pytest.mark.parametrize(
    ("members", "rule"),
    [
        ([("../x", b"")], "is outside of the archive"),
        ([("/etc/x", b"")], "is outside of the archive"),
        ([("sys/a", "/etc"), ("sys/a/x", b"")], "below one that is not a folder"),
        ([("sys/a", b""), ("sys/a", "/etc")], "is there twice"),
        ([("sys/a", b"x" * 4097)], "the most is 4096"),
        ([("use.json", b"x" * ((8 << 20) + 1))], "the most is 8388608"),
        ([("sys/bus/pci/devices", None), ("captured.json", b"{}")], "field 'v' is missing"),
        ([], "cannot be read"),
    ],
)
def test_an_archive_that_breaks_a_rule_is_refused_by_the_rule(
    members: list[tuple[str, bytes | str | None]], rule: str
) -> None:
    with pytest.raises(ArchiveError, match=rule):
        read_capture(archive(*members), "n1")


def test_a_link_reaches_nothing_but_the_archive() -> None:
    """Links that lead above the root, to each other, or through each other, as the machine's own would be followed."""
    root: Folder = {}
    links = {"a": "/etc/passwd", "b": "../../../etc/passwd", "c": "d", "d": "c", "e": "x/../../../etc", "x": "deep"}
    for name, target in links.items():
        add(root, ["sys", name], Link(target))
    add(root, ["sys", "deep", "file"], b"1")
    add(root, ["sys", "up"], Link("../../sys/deep/file"))
    tree = tree_at(root)
    assert [(tree / "sys" / name).exists() for name in "abcde"] == [False] * 5
    assert (tree / "sys/up").open("rb").read() == b"1"
    assert (tree / "sys/x/file").resolve().parts == ("/", "sys", "deep", "file")


def test_what_unpacks_to_more_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes that unpack to many cost no memory."""
    monkeypatch.setattr(node_archives, "MOST_BYTES", 1 << 20)
    bomb = archive(*((f"sys/{number}", b"\0" * 4096) for number in range(300)))
    assert len(bomb.getvalue()) < 1 << 16
    with pytest.raises(ArchiveError, match="more than 1048576 bytes unpacked"):
        read_capture(bomb, "n1")


def test_too_many_members_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_archives, "MOST_MEMBERS", 2)
    with pytest.raises(ArchiveError, match="more than 2 members"):
        read_capture(archive(("a", None), ("b", None), ("c", None)), "n1")


def test_a_node_that_fails_is_skipped_and_the_others_are_read(broken: Snapshot, tmp_path: Path) -> None:
    """An empty file is what a pod that was killed leaves."""
    (tmp_path / "n1.tar.gz").touch()
    (tmp_path / "n2.tar.gz").write_bytes(b"Error from server: container is waiting to start")
    (tmp_path / "n3.tar.gz").write_bytes(archive(("sys/bus/pci/devices", None)).getvalue())
    captures, failed = captures_of(in_folder(str(tmp_path), ["n1", "n2", "n3"]), lambda _what, _count: None)
    assert list(captures) == ["n3"]
    assert list(failed) == ["n1", "n2"]
    assert "gzip" in failed["n2"]


def test_an_archive_with_an_unreadable_header_is_skipped(broken: Snapshot, tmp_path: Path) -> None:
    """tarfile reads the numbers of a sparse file without checking them."""
    with tarfile.open(tmp_path / "n1.tar.gz", mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("sys/a")
        member.pax_headers = {"GNU.sparse.map": "a,b"}
        tar.addfile(member)
    captures, failed = captures_of(in_folder(str(tmp_path), ["n1"]), lambda _what, _count: None)
    assert not captures
    assert "invalid literal" in failed["n1"]


def test_the_name_of_an_archive_is_that_of_its_node() -> None:
    """Both NODE.tar.gz and what `capture` writes by itself."""
    nodes = ["n1", "mooring-n2"]
    named = [node_of(Path(f"{name}.tar.gz"), nodes) for name in ("n1", "mooring-n1", "mooring-n2", "mooring-n3")]
    assert named == ["n1", "n1", "mooring-n2", "n3"]
