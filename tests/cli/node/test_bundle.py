"""`mooring-node install --bundle`: what a release makes is installed, all else is refused before a byte is written."""

import contextlib
import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from random import Random

import pytest

from cli.node import venv
from cli.node.bundle import SUMS, checked, unpacked
from cli.node.errors import NodeError
from cli.plugin.bundle.archive import reading, writing
from cli.plugin.bundle.layout import BundleError
from tests.cli.node.conftest import NodeHost
from tests.support.seeds import Part

OURS = f"wheels/mooring-{version('mooring')}-py3-none-any.whl"
OTHER = "wheels/msgspec-0.22.0-cp311-cp311-manylinux_2_28_x86_64.whl"
WHOLE = {"sbom.cdx.json": b"{}", OURS: b"ours", OTHER: b"other"}


def _sums(files: Mapping[str, bytes]) -> bytes:
    return "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items()).encode()


def _tar(path: Path, files: Mapping[str, bytes], *further: tarfile.TarInfo, mode: str = "w:") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in further:
            archive.addfile(member)
    return path


def _whole(path: Path) -> Path:
    return _tar(path, {SUMS: _sums(WHOLE), **WHOLE})


def _member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def test_a_bundle_is_installed_like_the_wheelhouse_that_it_holds(kubeadm: NodeHost, tmp_path: Path) -> None:
    """The release has the same name, so that a second run with either changes nothing; nothing else stays."""
    bundle = _whole(tmp_path / "bundle.tar")
    with unpacked(bundle) as wheels:
        assert {path.name: path.read_bytes() for path in wheels.iterdir()} == {
            name.removeprefix("wheels/"): WHOLE[name] for name in (OURS, OTHER)
        }
        release = kubeadm.root / "opt/mooring/versions" / venv.release_of(wheels)
    assert not wheels.exists()
    (release / "bin").mkdir(parents=True)
    (release / "complete").write_text("")
    digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
    status, said = kubeadm.run("install", "--bundle", str(bundle), "--bundle-sha256", digest)
    assert status == 0, said
    assert (kubeadm.root / "opt/mooring/current").readlink().name == release.name
    assert kubeadm.run("check")[0] == 0
    for command in ("install", "upgrade"):
        status, said = kubeadm.run(command, "--bundle", str(bundle))
        assert (status, said.splitlines()[-1]) == (0, f"{command:12} nothing to do")


BROKEN = {
    "one byte changed": (
        {SUMS: _sums(WHOLE), **WHOLE, OTHER: b"0ther"},
        f"member '{OTHER}' has the SHA-256 '{hashlib.sha256(b'0ther').hexdigest()}', not '"
        f"{hashlib.sha256(b'other').hexdigest()}'",
    ),
    "a file that is not listed": (
        {SUMS: _sums({OURS: b"ours"}), OURS: b"ours", OTHER: b"other"},
        f"member '{OTHER}' is in the bundle but not in SHA256SUMS",
    ),
    "a file that is missing": (
        {SUMS: _sums(WHOLE), OURS: b"ours", OTHER: b"other"},
        "member 'sbom.cdx.json' is in SHA256SUMS but not in the bundle",
    ),
    "no hashes": (WHOLE, "member 'SHA256SUMS' is missing, which has the hashes of all others"),
    "a line without a hash": (
        {SUMS: b"abc  wheels/a.whl\n"},
        "line 1 of SHA256SUMS: 'abc  wheels/a.whl' is not '<SHA-256>  <member>'",
    ),
    "a member with two hashes": ({SUMS: _sums(WHOLE) * 2, **WHOLE}, "line 4 of SHA256SUMS: "),
    "a path out of the folder": (
        {SUMS: _sums({"wheels/../../etc/x.whl": b""}), "wheels/../../etc/x.whl": b""},
        "member 'wheels/../../etc/x.whl' is not one of SHA256SUMS, sbom.cdx.json and wheels/<name>.whl",
    ),
    "an absolute path": ({"/etc/passwd": b""}, "member '/etc/passwd' is not one of SHA256SUMS"),
    "a foreign file": (
        {SUMS: _sums(WHOLE), **WHOLE, "install.sh": b""},
        "member 'install.sh' is not one of SHA256SUMS",
    ),
    "a folder below the wheels": ({"wheels/a/b.whl": b""}, "member 'wheels/a/b.whl' is not one of"),
}


@pytest.mark.parametrize("why", BROKEN)
def test_a_bundle_that_is_not_as_it_was_made_changes_nothing(why: str, kubeadm: NodeHost, tmp_path: Path) -> None:
    """The message names the bundle, the member, the value and the rule; the host is as before."""
    files, said = BROKEN[why]
    bundle, before = _tar(tmp_path / "bundle.tar", files), kubeadm.tree()
    status, output = kubeadm.run("install", "--bundle", str(bundle))
    assert (status, output.startswith(f"mooring-node: bundle {str(bundle)!r}: ")) == (1, True)
    assert said in output
    assert kubeadm.tree() == before


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_what_is_not_a_plain_file_is_refused(kind: bytes, tmp_path: Path) -> None:
    """Links could lead anywhere, also to a member whose hash is right."""
    link = _member("wheels/link.whl", kind, OURS)
    bundle = _tar(tmp_path / "bundle.tar", {SUMS: _sums(WHOLE), **WHOLE}, link)
    with pytest.raises(NodeError, match=r"member 'wheels/link\.whl' is not a plain file"):
        checked(bundle)


def test_a_member_is_there_once(tmp_path: Path) -> None:
    """Whichever of two were checked, the other might be installed."""
    bundle = _tar(tmp_path / "bundle.tar", {SUMS: _sums(WHOLE), **WHOLE}, _member(OURS, tarfile.REGTYPE))
    with pytest.raises(NodeError, match="appears twice"):
        checked(bundle)


@pytest.mark.parametrize("content", [b"", b"not a tar" * 200])
def test_what_is_no_tar_is_refused_in_words(content: bytes, kubeadm: NodeHost, tmp_path: Path) -> None:
    """So is a file that is not there, and a compressed tar, whose size could not be known before."""
    bundle = tmp_path / "bundle.tar"
    bundle.write_bytes(content)
    for path in (bundle, tmp_path / "nowhere", _tar(tmp_path / "bundle.tgz", WHOLE, mode="w:gz")):
        status, said = kubeadm.run("install", "--bundle", str(path))
        assert (status, said.startswith(f"mooring-node: bundle {str(path)!r} cannot be read: ")) == (1, True)


def test_a_bundle_that_ends_early_is_refused(tmp_path: Path) -> None:
    """As a transfer that broke off leaves it."""
    files = {SUMS: _sums(WHOLE | {OTHER: b"x" * 20480}), **WHOLE, OTHER: b"x" * 20480}
    bundle = _tar(tmp_path / "bundle.tar", files)
    bundle.write_bytes(bundle.read_bytes()[:16384])
    with pytest.raises(NodeError, match="bundle"):
        checked(bundle)


def test_the_bundles_own_hash_is_compared_where_somebody_knows_it(kubeadm: NodeHost, tmp_path: Path) -> None:
    """Whoever can change the bundle can change the hashes in it, but not those of the release's SHA256SUMS."""
    bundle = _whole(tmp_path / "bundle.tar")
    found = hashlib.sha256(bundle.read_bytes()).hexdigest()
    status, said = kubeadm.run("install", "--bundle", str(bundle), "--bundle-sha256", "0" * 64)
    assert (status, f"its SHA-256 is {found!r}, not {'0' * 64!r}" in said) == (1, True)
    status, said = kubeadm.run("install", "--bundle", str(bundle), "--bundle-sha256", "abc")
    assert (status, "option bundle_sha256: 'abc' is not a SHA-256" in said) == (1, True)


def test_bundle_and_wheelhouse_are_not_given_both(kubeadm: NodeHost, tmp_path: Path) -> None:
    """One of them would be ignored without a word."""
    bundle = _whole(tmp_path / "bundle.tar")
    status, said = kubeadm.run("install", "--bundle", str(bundle), "--wheelhouse", str(tmp_path))
    assert (status, "exclude each other" in said) == (1, True)


def _pax(records: bytes, kind: bytes = tarfile.XHDTYPE, size: int | None = None) -> bytes:
    """Return a header of an extension with these records, and a plain member that it describes."""
    header, plain = _member("PaxHeaders", kind), tarfile.TarInfo(OURS)
    header.size = len(records) if size is None else size
    content = records.ljust(-(-len(records) // 512) * 512, b"\0")
    return header.tobuf(tarfile.USTAR_FORMAT) + content + plain.tobuf(tarfile.USTAR_FORMAT)


def _base_256(number: int) -> bytes:
    """Return a member's header with this size in the binary form of GNU tar."""
    header = bytearray(tarfile.TarInfo(OURS).tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = bytes([0x80 if number >= 0 else 0xFF]) + (number % (1 << 88)).to_bytes(11, "big")
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


HEADERS = {
    "a negative size": _pax(b"13 size=-512\n"),
    "a size to loop": _pax(b"14 size=-1024\n"),
    "a large size": _pax(b"32 size=99999999999999999999999\n"),
    "no number": _pax(b"12 size=abc\n"),
    "a length of zero": _pax(b"0 size=1\n"),
    "a length past the end": _pax(b"999999999999 size=1\n"),
    "no length": _pax(b"size=1\n"),
    "not UTF-8": _pax(b"11 path=\xff\xfe\n"),
    "a zero byte": _pax(b"12 path=a\0b\n"),
    "an encoding": _pax(b"21 hdrcharset=BINARY\n13 path=\xff\xff\xff\n"),
    "sparse": _pax(b"22 GNU.sparse.size=-1\n25 GNU.sparse.map=a,b,c,d\n"),
    "sparse 1.0": _pax(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n24 GNU.sparse.name=x.whl\n"),
    "a global header": _pax(b"13 size=-512\n", tarfile.XGLTYPE),
    "a long name": _pax(b"x" * 5000, tarfile.GNUTYPE_LONGNAME),
    "a header larger than the file": _pax(b"", size=(8 << 30) - 1),
    "a negative binary size": _base_256(-512),
    "a large binary size": _base_256(1 << 80),
    "a GNU sparse member": _member(OURS, tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT),
}


@pytest.mark.parametrize("shape", HEADERS)
def test_a_crafted_header_is_refused_by_both_readers_of_archives(shape: str, tmp_path: Path) -> None:
    """tarfile takes sizes from such headers: a negative one ended in a loop, others in errors of many classes."""
    bundle, support = tmp_path / "bundle.tar", tmp_path / "support.tar.gz"
    bundle.write_bytes(HEADERS[shape] + b"\0" * 10240)
    support.write_bytes(gzip.compress(bundle.read_bytes()))
    with pytest.raises(NodeError, match=r"^bundle '.*bundle\.tar'.*: "):
        checked(bundle)
    with pytest.raises(BundleError, match=r"^bundle '.*support\.tar\.gz'.*: "), reading(support):
        pass


def test_any_bytes_are_an_archive_or_refused(part: Part, tmp_path: Path) -> None:
    """Both readers get archives with a few bytes and blocks changed; with ``--long`` 20,000 of them."""
    random = part.random("archives")
    whole = _whole(tmp_path / "whole.tar").read_bytes()
    with writing(tmp_path / "whole.tar.gz", 1) as writer:
        writer.add("mooring-support/a", b"a" * 700)
        writer.add("mooring-support/b", b"b")
    other = gzip.decompress((tmp_path / "whole.tar.gz").read_bytes())
    bundle, support = tmp_path / "bundle.tar", tmp_path / "support.tar.gz"
    for _ in range(20_000 if part.whole else 300):
        bundle.write_bytes(_changed(random, whole))
        packed = gzip.compress(_changed(random, other), 1)
        support.write_bytes(_changed(random, packed) if random.random() < 0.3 else packed)
        with contextlib.suppress(NodeError):
            checked(bundle)
        with contextlib.suppress(BundleError), reading(support):
            pass


def _changed(random: Random, content: bytes) -> bytes:
    """Return an archive with passages replaced, and the checksums of its headers made right, so that more is read."""
    changed = bytearray(content)
    for _ in range(random.randint(1, 4)):
        begin = random.randrange(len(changed))
        passage = random.choice((b"\xff", b"\0", b"-1", b"x", b"L", b"S", b"777", b"\x80", random.randbytes(12), b""))
        changed[begin : begin + max(1, len(passage))] = passage
    for begin in range(0, len(changed) - 511, 512):
        block = changed[begin : begin + 512]
        if block[257:262] == b"ustar":
            block[148:156] = b"        "
            changed[begin + 148 : begin + 156] = b"%06o\0 " % sum(block)
    return bytes(changed)
