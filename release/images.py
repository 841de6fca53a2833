"""The two images as OCI archives: the Containerfile's instructions upon a base image, one layer with what they add.

The instructions are carried out by chroot, without a network, so this is root's and for this machine's architecture.
The base's layers stay as they are.
"""

import io
import json
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from devcluster.images.containerfile import Stage, build, instructions
from devcluster.runtime.images import add_blob, full_name, named, write_layout
from release.base_image import BaseImage
from release.source import ReleaseError, Source

TARGETS = ("scheduler", "advertiser")
_LAYER = "application/vnd.oci.image.layer.v1.tar"


def write(
    source: Source, base: BaseImage, wheels: Path, folder: Path, out: Path, targets: Sequence[str] = TARGETS
) -> Iterator[Path]:
    """Write each image's archive to ``out`` and yield it; ``folder`` is for what lies about meanwhile."""
    if os.geteuid() != 0:
        raise ReleaseError("images: the Containerfile's instructions are carried out by chroot, which is root's")
    text = (source.folder / "Containerfile").read_text(encoding="utf-8")
    root = base.unpack(folder / "base")
    context = folder / "context"
    shutil.copytree(wheels, context / "wheelhouse")
    # Python's compiled files then have the hash of their source in them, and no time (PEP 552).
    fixed = {"SOURCE_DATE_EPOCH": str(source.epoch), "PYTHONHASHSEED": "0"}
    for target in targets:
        stages = folder / target
        stages.mkdir()
        stage = build(text, context, {_base_name(text): root}, stages, target, fixed)[target]
        path = out / f"mooring-{target}-{source.version}.oci.tar"
        yield _write(path, full_name(f"mooring-{target}:{source.version}"), base, stage, root, source)
        shutil.rmtree(stages)


def _base_name(text: str) -> str:
    return next(rest for word, rest in instructions(text) if word == "ARG").partition("=")[2]


def _write(path: Path, name: str, base: BaseImage, stage: Stage, root: Path, source: Source) -> Path:
    blobs: dict[str, bytes] = {}
    added = add_blob(blobs, _layer(stage.root, root, source.epoch), _LAYER)
    layers = [dict(add_blob(blobs, content, descriptor["mediaType"])) for descriptor, content in base.layers]
    config = add_blob(
        blobs,
        _json(_config(base.config, stage, str(added["digest"]), source)),
        "application/vnd.oci.image.config.v1+json",
    )
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [*layers, added]}
    return write_layout(path, blobs, [named(add_blob(blobs, _json(manifest), kind), name)])


def _config(base: Mapping[str, Any], stage: Stage, layer: str, source: Source) -> dict[str, Any]:
    """Return the image's configuration: the base's, and what the Containerfile sets."""
    process = dict(base.get("config") or {})
    theirs = dict(one.split("=", 1) for one in process.get("Env") or ())
    env = [f"{name}={value}" for name, value in {**theirs, **stage.environment}.items()]
    process |= {"Env": env, "User": stage.user, "Entrypoint": list(stage.entrypoint)}
    # An argument of the base's own program.
    process.pop("Cmd", None)
    process["Labels"] = {
        **(process.get("Labels") or {}),
        "org.opencontainers.image.version": source.version,
        "org.opencontainers.image.revision": source.commit,
    }
    created = datetime.fromtimestamp(source.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    history = [*(base.get("history") or ()), {"created": created, "created_by": "Containerfile"}]
    rootfs = {"type": "layers", "diff_ids": [*base["rootfs"]["diff_ids"], layer]}
    return {**base, "created": created, "config": process, "rootfs": rootfs, "history": history}


def _layer(root: Path, base: Path, epoch: int) -> bytes:
    """Return the tar of what lies in ``root`` and not in ``base``; unchanged files are links to the base's."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in _added(root, base):
            member = archive.gettarinfo(path, str(path.relative_to(root)))
            if member.islnk():
                # Of another file of the layer; each is whole.
                member.type, member.size, member.linkname = tarfile.REGTYPE, path.stat().st_size, ""
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = epoch
            if member.isreg():
                with path.open("rb") as content:
                    archive.addfile(member, content)
            else:
                archive.addfile(member)
    return output.getvalue()


def _added(root: Path, base: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        there = base / path.relative_to(root)
        now, before = path.lstat(), there.lstat() if there.exists() or there.is_symlink() else None
        is_folder = before is not None and stat.S_ISDIR(now.st_mode) and stat.S_ISDIR(before.st_mode)
        if before is None or not (is_folder or (now.st_ino, now.st_dev) == (before.st_ino, before.st_dev)):
            yield path


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
