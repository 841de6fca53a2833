"""``podman build`` and ``podman push`` for a machine without a container engine and a cluster without a registry.

The Containerfile's own instructions are carried out by chroot (`devcluster.images.containerfile`) on a stand-in for the
base image, this machine's Python; what is pushed goes to the registry of the cluster, whatever registry the name says.
"""

import argparse
import shutil
import sys
from pathlib import Path

from devcluster.images import registry, slim
from devcluster.images.containerfile import build
from devcluster.runtime.images import full_name, write_folder_image

_BASE = "docker.io/library/python:3.11-slim-bookworm"


def main(arguments: list[str] | None = None) -> int:
    """Build or push an image; return the exit status."""
    parser = argparse.ArgumentParser(prog="podman", description=__doc__)
    parser.add_argument("--cluster", type=Path, required=True, help="folder of the devcluster")
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build")
    building.add_argument("--target", required=True)
    building.add_argument("--tag", required=True)
    building.add_argument("context", type=Path)
    pushing = commands.add_parser("push")
    pushing.add_argument("name")
    given = parser.parse_args(arguments)
    folder = given.cluster / "engine"
    if given.command == "build":
        _build(folder, given.context.absolute(), given.target, given.tag)
    else:
        _push(folder, given.cluster / "registry", given.name)
    return 0


def _build(folder: Path, context: Path, target: str, tag: str) -> None:
    root = folder / "base"
    bases = {_BASE: root if root.exists() else slim.make(root)}
    stages = folder / "stages"
    shutil.rmtree(stages, ignore_errors=True)
    stages.mkdir(parents=True)
    stage = build((context / "Containerfile").read_text(), context, bases, stages, target)[target]
    write_folder_image(_tarball(folder, tag), full_name(tag), stage.root, stage.process)
    shutil.rmtree(stages)
    print(f"built {full_name(tag)}")


def _push(folder: Path, images: Path, name: str) -> None:
    tarball = _tarball(folder, name)
    if not tarball.exists():
        raise SystemExit(f"Error: {name}: image not known")
    for pushed in registry.add(images, tarball):
        print(f"pushed {pushed}")


def _tarball(folder: Path, tag: str) -> Path:
    return folder / f"{full_name(tag).replace('/', '_').replace(':', '_')}.tar"


if __name__ == "__main__":
    sys.exit(main())
