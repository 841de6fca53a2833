"""The images of a release: their layers, what is in them and what is not, equal twice."""

import io
import json
import re
import stat
import subprocess
import tarfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from release.locked import REPOSITORY
from tests.release.conftest import make_elsewhere
from tests.support.built_release import ARCH, built_release

pytestmark = [pytest.mark.wheels, pytest.mark.timeout(600)]
NAMES = ("mooring-scheduler", "mooring-advertiser", "mooring-node-installer")


@dataclass(frozen=True, slots=True)
class Image:
    """An image of this machine's architecture: its process, the layers' digests, every file's header, its SBOM."""

    process: Mapping[str, Any]
    layers: tuple[str, ...]
    members: Mapping[str, tarfile.TarInfo]
    sbom: Mapping[str, Any]

    def packages(self) -> set[str]:
        found = {name.partition("/dist-packages/")[2].split("/")[0] for name in self.members}
        return {name for name in found if name}


def _read(archive: Path) -> Image:
    with tarfile.open(archive) as layout:

        def blob(descriptor: Mapping[str, Any]) -> bytes:
            file = layout.extractfile(f"blobs/{descriptor['digest'].replace(':', '/')}")
            assert file is not None
            return file.read()

        index = layout.extractfile("index.json")
        assert index is not None
        (platform,) = json.loads(blob(json.load(index)["manifests"][0]))["manifests"]
        assert platform["platform"] == {"architecture": ARCH, "os": "linux"}
        manifest = json.loads(blob(platform))
        members: dict[str, tarfile.TarInfo] = {}
        sbom: dict[str, Any] = {}
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(blob(layer))) as plain:
                members |= {one.name: one for one in plain}
                if "sbom.cdx.json" in plain.getnames() and (file := plain.extractfile("sbom.cdx.json")) is not None:
                    sbom = json.load(file)
        process = json.loads(blob(manifest["config"]))["config"]
        return Image(process, tuple(one["digest"] for one in manifest["layers"]), members, sbom)


@pytest.fixture(scope="module")
def images() -> Mapping[str, Image]:
    found = {}
    for name in NAMES:
        (archive,) = built_release().glob(f"{name}-*.oci.tar")
        found[name] = _read(archive)
    return found


def test_an_image_has_an_sbom_of_all_its_packages(images: Mapping[str, Image]) -> None:
    """Debian packages and wheels; the certificates are a Debian package's too."""
    for image in images.values():
        names = {one["name"] for one in image.sbom["components"]}
        assert {"libc6", "ca-certificates"} < names
        wheels = {name.partition("-")[0].replace("_", "-").lower() for name in image.packages() if ".dist-info" in name}
        assert {re.sub(r"[._]", "-", name) for name in wheels} - {"mooring"} <= names
    serials = {image.sbom["serialNumber"] for image in images.values()}
    assert len(serials) == len(NAMES)


def test_an_image_has_its_program_and_nothing_of_others(images: Mapping[str, Image]) -> None:
    """No shell, no compiler, no pip; an image has the packages that its own program needs."""
    for image in images.values():
        programs = {name.rpartition("/")[2] for name in image.members if name.startswith(("bin/", "usr/"))}
        assert programs == {"bin", *image.process["Entrypoint"]}
        assert image.packages().isdisjoint({"pip", "pytest", "release", "devcluster"})
        assert stat.S_ISVTX & image.members["tmp"].mode
    scheduler, advertiser, installer = (images[name].packages() for name in NAMES)
    assert {"numpy", "scheduler"} < scheduler
    assert scheduler.isdisjoint({"pyroute2", "grpc"})
    assert "pyroute2" in advertiser
    assert advertiser.isdisjoint({"numpy", "grpc"})
    assert {"pyroute2", "grpc"} < installer
    assert "numpy" not in installer
    assert {"mooring/RELEASE.json", "mooring/bin/mooring-cni"} < images["mooring-node-installer"].members.keys()


def test_what_all_images_have_is_one_layer(images: Mapping[str, Image]) -> None:
    """A node that has one image fetches only the rest of another."""
    assert len({image.layers[0] for image in images.values()}) == 1
    assert [len(image.layers) for image in images.values()] == [2, 2, 2]


def test_files_are_roots_and_of_the_commits_time(images: Mapping[str, Image]) -> None:
    """No file is set-uid, and only the folder for temporary files can be written by all."""
    epoch = int(subprocess.run([*_GIT, "show", "-s", "--format=%ct"], capture_output=True, check=True).stdout)
    for image in images.values():
        assert {(one.uid, one.gid, one.mtime) for one in image.members.values()} == {(0, 0, epoch)}
        plain = {name: one.mode for name, one in image.members.items() if not one.issym()}
        writable = {name for name, mode in plain.items() if mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH)}
        assert writable == {"tmp"}


_GIT = ("git", "-c", f"safe.directory={REPOSITORY}", "-C", str(REPOSITORY))


def test_the_scheduler_alone_is_not_root(images: Mapping[str, Image]) -> None:
    """By number, which a kubelet can compare; labels name the version and the commit."""
    assert [images[name].process["User"] for name in NAMES] == ["65532:65532", "0:0", "0:0"]
    commit = subprocess.run([*_GIT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    for image in images.values():
        labels = image.process["Labels"]
        assert labels["org.opencontainers.image.revision"] == commit
        assert labels["org.opencontainers.image.version"] == version


@pytest.mark.slow
def test_images_that_are_made_twice_have_equal_bytes(tmp_path: Path) -> None:
    """As every other file of a release that is made elsewhere."""
    again = make_elsewhere(tmp_path, "--arch", ARCH)
    for archive in built_release().glob("*.tar*"):
        assert (again / archive.name).read_bytes() == archive.read_bytes(), archive.name
