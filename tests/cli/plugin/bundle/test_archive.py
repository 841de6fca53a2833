"""The archive of a support bundle: the same bytes for the same content, and a reader that no archive harms."""

import gzip
import io
import os
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.plugin.bundle.archive import reading, writing
from cli.plugin.bundle.layout import MOST_MEMBER_BYTES, BundleError

NAME = "mooring-support/api/api/v1/pods/0001.json"


def written(path: Path, **members: bytes) -> Path:
    with writing(path, 1_700_000_000) as writer:
        for name, content in members.items():
            writer.add(f"mooring-support/{name}", content)
    return path


def test_members_are_read_back_and_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    """Only the owner may read the file."""
    first, second = (written(tmp_path / name, one=b"1" * 600, two=b"") for name in ("a.tar.gz", "b.tar.gz"))
    assert first.read_bytes() == second.read_bytes()
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    with reading(first) as bundle:
        assert (bundle.read("mooring-support/one"), bundle.read("mooring-support/two")) == (b"1" * 600, b"")
        with pytest.raises(BundleError, match="member 'mooring-support/three' is missing"):
            bundle.read("mooring-support/three")


def test_a_bundle_is_unpacked_by_tar(tmp_path: Path) -> None:
    """Folder and files; a bundle that is packed again, with its folders, is read as before."""
    path = written(tmp_path / "a.tar.gz", one=b"1")
    subprocess.run(["tar", "xzf", path, "-C", tmp_path], check=True)
    assert (tmp_path / "mooring-support/one").read_bytes() == b"1"
    subprocess.run(["tar", "czf", tmp_path / "b.tar.gz", "-C", tmp_path, "mooring-support"], check=True)
    with reading(tmp_path / "b.tar.gz") as bundle:
        assert bundle.read("mooring-support/one") == b"1"


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_text("mine")
    with pytest.raises(BundleError, match="exists already: name another one by -o"):
        written(path, one=b"1")
    assert path.read_text() == "mine"


def test_a_bundle_that_cannot_be_finished_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    with pytest.raises(BundleError, match="is not below mooring-support/ by a plain name"):
        written(path, **{"../x": b"1"})
    assert not path.exists()


def packed(path: Path, *members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.USTAR_FORMAT) -> Path:
    with tarfile.open(path, "w:gz", format=form) as archive:
        for member, content in members:
            archive.addfile(member, io.BytesIO(content))
    return path


def member(name: str, size: int = 0, **fields: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size = size
    for field, value in fields.items():
        setattr(made, field, value)
    return made


CRAFTED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "traversal": (lambda path: packed(path, (member("mooring-support/../../x"), b"")), "is not below mooring-support/"),
    "absolute": (lambda path: packed(path, (member("/etc/passwd"), b"")), "is not below mooring-support/"),
    "hidden": (lambda path: packed(path, (member("mooring-support/.ssh"), b"")), "is not below mooring-support/"),
    "symlink": (
        lambda path: packed(path, (member(NAME, type=tarfile.SYMTYPE, linkname="/etc/shadow"), b"")),
        "is not a plain file",
    ),
    "hard link": (
        lambda path: packed(path, (member(NAME, type=tarfile.LNKTYPE, linkname="x"), b"")), "is not a plain file"
    ),
    "device": (lambda path: packed(path, (member(NAME, type=tarfile.CHRTYPE), b"")), "is not a plain file"),
    "twice": (lambda path: packed(path, (member(NAME), b""), (member(NAME), b"")), "is there twice"),
    "long name": (
        lambda path: packed(path, (member(f"mooring-support/{'x' * 200}"), b""), form=tarfile.GNU_FORMAT),
        "is not below mooring-support/",
    ),
    "pax": (
        lambda path: packed(path, (member(NAME, pax_headers={"a": "b"}), b""), form=tarfile.PAX_FORMAT),
        "is not below mooring-support/",
    ),
    "too large": (
        lambda path: raw(path, member(NAME, MOST_MEMBER_BYTES + 1).tobuf(tarfile.USTAR_FORMAT)),
        f"has {MOST_MEMBER_BYTES + 1} bytes, the most is {MOST_MEMBER_BYTES}",
    ),
    "negative": (lambda path: raw(path, negative()), "has -1 bytes, the most is"),
    "cut": (lambda path: raw(path, member(NAME, 1000).tobuf(tarfile.USTAR_FORMAT) + b"x" * 100), "ends early"),
    "half a header": (lambda path: raw(path, b"x" * 100), "truncated header"),
    "no header": (lambda path: raw(path, b"x" * 512), "invalid header"),
    "no gzip": (lambda path: plain(path, b"x" * 512), "Not a gzipped file"),
    "cut gzip": (lambda path: plain(path, gzip.compress(os.urandom(2000))[:500]), "cannot be read: "),
    "broken gzip": (lambda path: plain(path, gzip.compress(b"x" * 512)[:10] + b"\xff" * 100), "cannot be read: "),
}  # fmt: skip


def raw(path: Path, content: bytes) -> Path:
    return plain(path, gzip.compress(content))


def plain(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def negative() -> bytes:
    """Return a header whose size is -1 in GNU's base 256."""
    header = bytearray(member(NAME).tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = b"\xff" * 12
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


@pytest.mark.parametrize("how", CRAFTED)
def test_a_crafted_archive_is_refused_in_words(how: str, tmp_path: Path) -> None:
    """The message names the archive and the rule."""
    make, rule = CRAFTED[how]
    path = make(tmp_path / "crafted.tar.gz")
    with pytest.raises(BundleError) as refused, reading(path):
        pass
    assert str(refused.value).startswith(f"bundle {str(path)!r}")
    assert rule in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for path, rule in ((tmp_path / "nowhere", "does not exist"), (tmp_path, "cannot be read: ")):
        with pytest.raises(BundleError, match=rule), reading(path):
            pass


def test_a_bomb_takes_neither_memory_nor_disk(tmp_path: Path) -> None:
    """A gigabyte of zeros behind a header, and folders without end: both end at a limit, in little memory."""
    header = member(NAME, 1 << 30).tobuf(tarfile.USTAR_FORMAT)
    large = tmp_path / "large.tar.gz"
    with gzip.open(large, "wb", compresslevel=1) as file:
        file.write(header)
        for _ in range(64):
            file.write(bytes(1 << 20))
    many = tmp_path / "many.tar.gz"
    folder = member("mooring-support", type=tarfile.DIRTYPE).tobuf(tarfile.USTAR_FORMAT)
    with gzip.open(many, "wb", compresslevel=1) as file:
        for _ in range(25):
            file.write(folder * 1000)
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from cli.plugin.bundle.archive import reading\n"
        "from cli.plugin.bundle.layout import BundleError\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n"
        "    with reading(Path(sys.argv[1])): pass\n"
        "except BundleError as refused: print(refused)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    for path, rule in ((large, "more than 1073741824 bytes unpacked"), (many, "more than 20000 members")):
        ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
        said, grown_kib = ran.stdout.splitlines()
        assert rule in said
        assert int(grown_kib) < 16 * 1024
