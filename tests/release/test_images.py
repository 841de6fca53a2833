"""An image of a release: the base's layers with one of ours upon them, equal twice, whose program starts."""

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster.images import slim
from devcluster.runtime.images import write_folder_image
from release import base_image, cache, images, wheels
from release.base_image import BaseImage
from release.locked import REPOSITORY
from release.source import Source, export

# slim's stand-in for the base image has busybox for its shell.
pytestmark = [pytest.mark.root, pytest.mark.wheels, pytest.mark.containerd]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return export(REPOSITORY, tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseImage:
    """A stand-in for the image that the Containerfile names, as an archive."""
    folder = tmp_path_factory.mktemp("base")
    process = {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"], "Cmd": ["python3"]}
    archive = write_folder_image(folder / "base.tar", "python:slim", slim.make(folder / "root"), process)
    return base_image.read(f"oci-archive:{archive}")


@pytest.fixture(scope="module")
def wheelhouse(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheelhouse")
    wheels.build(source, folder)
    for path in wheels.locked(source, cache.wheels(os.environ)):
        (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def made(
    source: Source, base: BaseImage, wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Path]]:
    """The advertiser's image, made twice; the scheduler's goes the same way."""
    folder = tmp_path_factory.mktemp("images")
    found: list[Path] = []
    for name in ("once", "again"):
        (folder / name).mkdir()
        found += images.write(source, base, wheelhouse, folder / f"work-{name}", folder / name, ("advertiser",))
    once, again = found
    yield once, again
    once.unlink()
    again.unlink()


def _manifest(image: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an image's index entry and its configuration."""
    with tarfile.open(image) as archive:

        def document(name: str) -> dict[str, Any]:
            content = archive.extractfile(name)
            assert content is not None
            found: dict[str, Any] = json.load(content)
            return found

        (entry,) = document("index.json")["manifests"]
        manifest = document(f"blobs/{entry['digest'].replace(':', '/')}")
        return entry, document(f"blobs/{manifest['config']['digest'].replace(':', '/')}")


@pytest.mark.timeout(400)
@pytest.mark.slow
def test_an_image_that_is_made_twice_has_equal_bytes(made: tuple[Path, Path]) -> None:
    """Its files' times and what Python compiles of them too."""
    once, again = made
    assert once.read_bytes() == again.read_bytes()


def test_an_image_has_the_bases_layers_and_one_of_ours(
    made: tuple[Path, Path], base: BaseImage, source: Source
) -> None:
    """Ours holds /opt/mooring; the configuration is the base's with what the Containerfile sets."""
    image = base_image.read(f"oci-archive:{made[0]}")
    assert [content for _, content in image.layers[:-1]] == [content for _, content in base.layers]
    with tarfile.open(made[0]) as archive:
        layer = archive.extractfile(f"blobs/{image.layers[-1][0]['digest'].replace(':', '/')}")
        assert layer is not None
        with tarfile.open(fileobj=layer) as ours:
            members = ours.getmembers()
    assert {"/".join(one.name.split("/")[:2]) for one in members} == {"opt", "opt/mooring"}
    assert {(one.uid, one.gid, one.mtime) for one in members} == {(0, 0, source.epoch)}
    entry, config = _manifest(made[0])
    assert entry["annotations"]["io.containerd.image.name"] == f"docker.io/library/mooring-advertiser:{source.version}"
    process = config["config"]
    assert (process["User"], process["Entrypoint"]) == ("0:0", ["mooring-advertiser"])
    assert {"PATH=/opt/mooring/bin:/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"} < set(process["Env"])
    assert "Cmd" not in process


def test_the_program_of_an_image_starts_from_its_layers(made: tuple[Path, Path], tmp_path: Path) -> None:
    """The layers unpacked as an engine does it, the entrypoint by the configuration's own PATH."""
    root = base_image.read(f"oci-archive:{made[0]}").unpack(tmp_path / "root")
    process = _manifest(made[0])[1]["config"]
    command = ["/usr/sbin/chroot", str(root), *process["Entrypoint"], "--help"]
    environment = dict(one.split("=", 1) for one in process["Env"])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: mooring-advertiser")
    assert (root / "opt/mooring/lib").exists()
