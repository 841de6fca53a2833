"""Base images as engines write them: layers that are compressed, that replace and remove; archives that are none."""

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from release.base_image import read
from release.source import ReleaseError

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
_TAR = "application/vnd.oci.image.layer.v1.tar"


def _tar(files: Mapping[str, bytes], mode: int = 0o644, link: tuple[str, str] | None = None) -> bytes:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as archive:
        if link:
            member = tarfile.TarInfo(link[0])
            member.type, member.linkname = tarfile.SYMTYPE, link[1]
            archive.addfile(member)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            archive.addfile(member, io.BytesIO(content))
    return output.getvalue()


def _archive(
    path: Path, layers: list[tuple[str, bytes]], architecture: str = ARCHITECTURE, indexed: bool = False
) -> str:
    """Write an OCI archive; ``indexed``: its index names another one, of two platforms, as registries have it."""
    blobs: dict[str, bytes] = {}

    def add(content: bytes, kind: str, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content), **more}

    described = [add(content, kind) for kind, content in layers]
    config = {"architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}
    added = add(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json")
    manifest = {"schemaVersion": 2, "config": added, "layers": described}
    kind = "application/vnd.oci.image.manifest.v1+json"
    one = add(json.dumps(manifest).encode(), kind)
    if indexed:
        other = {**one, "platform": {"architecture": "riscv64"}, "digest": f"sha256:{'0' * 64}"}
        index = {"mediaType": "application/vnd.oci.image.index.v1+json"}
        both = [other, {**one, "platform": {"architecture": architecture}}]
        one = add(json.dumps({**index, "manifests": both}).encode(), str(index["mediaType"]))
    files = {"oci-layout": b"{}", "index.json": json.dumps({"manifests": [one]}).encode(), **blobs}
    path.write_bytes(_tar(files))
    return f"oci-archive:{path}"


def _texts(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.root
@pytest.mark.parametrize("indexed", [False, True])
def test_layers_replace_and_remove_what_lies_below(tmp_path: Path, indexed: bool) -> None:
    """By image-spec's whiteouts; modes stay, also set-uid ones, which the base's own programs need."""
    below = _tar({"a/one": b"1", "a/two": b"2", "b/three": b"3", "bin/su": b""}, mode=0o4755)
    above = _tar({"a/.wh.one": b"", "b/.wh..wh..opq": b"", "b/four": b"4", "a/two": b"two"})
    layers = [(f"{_TAR}+gzip", gzip.compress(below)), (_TAR, above)]
    root = read(_archive(tmp_path / "base.tar", layers, indexed=indexed)).unpack(tmp_path / "root")
    assert _texts(root) == {"a/two": "two", "b/four": "4", "bin/su": ""}
    assert (root / "bin/su").stat().st_mode & 0o7777 == 0o4755


@pytest.mark.parametrize(
    "name", ["../outside", "a/../../outside", "/outside", "out/side/a", "../.wh.kept", "out/.wh.kept"]
)
def test_a_layer_changes_nothing_outside_of_its_root(tmp_path: Path, name: str) -> None:
    """Whatever the archive is, the machine on which a release is made stays as it is."""
    (tmp_path / "side").mkdir()
    (tmp_path / "kept").touch()
    link = _tar({"a/b": b""}, link=("out", str(tmp_path)))
    base = read(_archive(tmp_path / "base.tar", [(_TAR, link), (_TAR, _tar({name: b""}))]))
    with pytest.raises(ReleaseError, match="lies outside of the image's root"):
        base.unpack(tmp_path / "root")
    assert not (tmp_path / "outside").exists()
    assert list((tmp_path / "side").iterdir()) == []
    assert (tmp_path / "kept").exists()


def test_another_machines_image_is_refused(tmp_path: Path) -> None:
    """Its programs could not be run here."""
    with pytest.raises(ReleaseError, match=f"it is for 'riscv64', this machine is '{ARCHITECTURE}'"):
        read(_archive(tmp_path / "base.tar", [], architecture="riscv64"))


def test_a_blob_that_was_changed_is_refused(tmp_path: Path) -> None:
    """By its digest."""
    place = _archive(tmp_path / "base.tar", [(_TAR, _tar({"a": b"unchanged"}))])
    path = tmp_path / "base.tar"
    path.write_bytes(path.read_bytes().replace(b"unchanged", b"Unchanged"))
    with pytest.raises(ReleaseError, match="has other contents than its digest says"):
        read(place)


def test_a_compression_that_is_not_known_is_named(tmp_path: Path) -> None:
    """Engines can write zstd, which Python's library does not read."""
    base = read(_archive(tmp_path / "base.tar", [(f"{_TAR}+zstd", b"")]))
    with pytest.raises(ReleaseError, match=r"is '.*zstd', neither a tar nor one by gzip"):
        base.unpack(tmp_path / "root")
