"""The local images: what is in the tarball, and that its bytes depend on busybox alone."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from devcluster.runtime import images


@pytest.fixture
def busybox(tmp_path: Path) -> Path:
    path = tmp_path / "busybox"
    path.write_text("#!/bin/sh\nprintf 'busybox\\nls\\nsleep\\nsh\\n'\n")
    path.chmod(0o755)
    return path


def _read(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        return {member.name: members.extractfile(member).read() for member in members if member.isfile()}  # type: ignore[union-attr] # files only


def _blob(files: dict[str, bytes], descriptor: dict[str, str]) -> bytes:
    return files[f"blobs/{descriptor['digest'].replace(':', '/')}"]


def test_equal_busybox_binaries_give_equal_bytes(tmp_path: Path, busybox: Path) -> None:
    """No clock, owner or folder order of the building machine is in the tarball."""
    first = images.write_images(tmp_path / "a" / "images.tar", busybox=busybox).read_bytes()
    second = images.write_images(tmp_path / "b" / "images.tar", busybox=busybox).read_bytes()
    assert second == first


def test_index_names_both_images_and_the_further_names(tmp_path: Path, busybox: Path) -> None:
    """Every requested name refers to the busybox image; pause has a configuration of its own."""
    files = _read(images.write_images(tmp_path / "images.tar", ["example.org/app:1"], busybox).read_bytes())
    manifests = json.loads(files["index.json"])["manifests"]
    digests = {entry["annotations"]["io.containerd.image.name"]: entry["digest"] for entry in manifests}
    assert list(digests) == [images.BUSYBOX, "example.org/app:1", images.PAUSE]
    assert digests["example.org/app:1"] == digests[images.BUSYBOX] != digests[images.PAUSE]


def test_layer_holds_busybox_and_a_link_for_each_applet(tmp_path: Path, busybox: Path) -> None:
    """A container finds its commands in /bin, and the folders that a runtime mounts over exist."""
    files = _read(images.write_images(tmp_path / "images.tar", busybox=busybox).read_bytes())
    manifest = json.loads(_blob(files, json.loads(files["index.json"])["manifests"][0]))
    with tarfile.open(fileobj=io.BytesIO(_blob(files, manifest["layers"][0]))) as layer:
        links = {member.name: member.linkname for member in layer if member.issym()}
        folders = {member.name for member in layer if member.isdir()}
    assert links == {"bin/ls": "busybox", "bin/sleep": "busybox", "bin/sh": "busybox"}
    assert {"dev", "proc", "sys"} <= folders


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1.36", "docker.io/library/busybox:1.36"),
        ("mellanox/centos", "docker.io/mellanox/centos:latest"),
        ("example.org/app", "example.org/app:latest"),
        ("localhost:5000/app:2", "localhost:5000/app:2"),
        ("localhost/app", "localhost/app:latest"),
    ],
)
def test_image_names_are_completed_as_the_runtime_does(short: str, full: str) -> None:
    """A manifest's short name and the stored name are the same image."""
    assert images.full_name(short) == full
