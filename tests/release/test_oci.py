"""Archives of images for two architectures: what containerd and registries' programs read of them."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from release import oci
from release.members import Member

_EPOCH = 1_700_000_000
_CREATED = "2023-11-14T22:13:20Z"
_TREE = {
    "mooring/bin/tool": Member(b"#!/bin/sh\n", 0o755),
    "lib64/loader": Member(link="/mooring/lib/loader"),
    "tmp/": Member(mode=0o1777),
}


def _write(path: Path) -> dict[str, bytes]:
    """Write an archive of a tool for two architectures; return its files."""
    images = [oci.PlatformImage(arch, (oci.layer(_TREE, _EPOCH),), {"User": "1:1"}) for arch in ("amd64", "arm64")]
    with tarfile.open(oci.write(path, "tool:1.0", images, _CREATED)) as archive:
        return {one.name: file.read() for one in archive if (file := archive.extractfile(one)) is not None}


def _blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    content = files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
    assert (descriptor["digest"], descriptor["size"]) == (
        f"sha256:{hashlib.sha256(content).hexdigest()}",
        len(content),
    )
    return content


def test_one_index_leads_to_each_architectures_image(tmp_path: Path) -> None:
    """Every descriptor has the digest and the size of its blob, and no blob is without one."""
    files = _write(tmp_path / "tool.tar")
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"] == {
        "io.containerd.image.name": "docker.io/library/tool:1.0",
        "org.opencontainers.image.ref.name": "1.0",
    }
    index = json.loads(_blob(files, entry))
    assert [one["platform"]["architecture"] for one in index["manifests"]] == ["amd64", "arm64"]
    reached = {entry["digest"]}
    for descriptor in index["manifests"]:
        manifest = json.loads(_blob(files, descriptor))
        config = json.loads(_blob(files, manifest["config"]))
        assert (config["architecture"], config["config"]) == (descriptor["platform"]["architecture"], {"User": "1:1"})
        (layer,) = manifest["layers"]
        with tarfile.open(fileobj=io.BytesIO(_blob(files, layer)), mode="r:gz") as plain:
            assert {one.mtime for one in plain} == {_EPOCH}
        reached |= {one["digest"] for one in (descriptor, manifest["config"], layer)}
    assert {f"blobs/{digest.replace(':', '/')}" for digest in reached} == files.keys() - {"oci-layout", "index.json"}


def test_a_layer_has_its_members_and_the_folders_above_them() -> None:
    """Sorted, all root's, each with its mode."""
    layer = oci.layer(_TREE, _EPOCH)
    with tarfile.open(fileobj=io.BytesIO(layer.content)) as plain:
        members = plain.getmembers()
    assert {(one.uid, one.gid) for one in members} == {(0, 0)}
    assert [(one.name, oct(one.mode), one.linkname) for one in members] == [
        ("lib64", "0o755", ""),
        ("lib64/loader", "0o777", "/mooring/lib/loader"),
        ("mooring", "0o755", ""),
        ("mooring/bin", "0o755", ""),
        ("mooring/bin/tool", "0o755", ""),
        ("tmp", "0o1777", ""),
    ]


def test_equal_parts_give_equal_bytes_at_any_time(tmp_path: Path) -> None:
    """The archive has no time but the one that it is given."""
    _write(tmp_path / "one.tar")
    _write(tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
