"""Read a base image from an OCI archive (image-spec 1.0, image-layout.md): its configuration, its layers, its root."""

import gzip
import hashlib
import io
import json
import platform
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release.source import ReleaseError

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_INDEX = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
# Python 3.12 wants to be told; its own filters would take set-uid bits away. Debian 12's has none.
_TRUSTED: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
_OPAQUE, _GONE = ".wh..wh..opq", ".wh."


@dataclass(frozen=True, slots=True)
class BaseImage:
    """An image's configuration, and its layers: each with its descriptor and its bytes."""

    config: dict[str, Any]
    layers: tuple[tuple[dict[str, Any], bytes], ...]

    def unpack(self, root: Path) -> Path:
        """Write the root folder that the layers make, as root; return it."""
        root.mkdir(parents=True)
        for descriptor, content in self.layers:
            with tarfile.open(fileobj=io.BytesIO(_plain(descriptor, content))) as layer:
                _remove_what_is_gone(layer, root)
                for member in layer:
                    if not Path(member.name).name.startswith(_GONE):
                        _extract(layer, member, root)
        return root


def read(place: str) -> BaseImage:
    """Read ``oci-archive:FILE``; raise ReleaseError for what is none, or lacks this machine's image."""
    kind, _, path = place.partition(":")
    if kind != "oci-archive" or not path:
        raise ReleaseError(f"base image {place!r}: not oci-archive:FILE")
    try:
        blobs = _files(Path(path))
        index = json.loads(blobs["index.json"])
    except (OSError, KeyError, ValueError, tarfile.TarError) as wrong:
        raise ReleaseError(f"base image {place!r}: not an OCI archive: {wrong!r}") from wrong
    manifest = _manifest(place, blobs, index)
    layers = tuple((one, _blob(place, blobs, one["digest"])) for one in manifest["layers"])
    config: dict[str, Any] = json.loads(_blob(place, blobs, manifest["config"]["digest"]))
    if config.get("architecture") != (wanted := _architecture()):
        raise ReleaseError(
            f"base image {place!r}: it is for {config.get('architecture')!r}, this machine is {wanted!r}"
        )
    return BaseImage(config, layers)


def _files(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        members = [one for one in archive.getmembers() if one.isfile()]
        return {one.name.removeprefix("./"): file.read() for one in members if (file := archive.extractfile(one))}


def _manifest(place: str, blobs: dict[str, bytes], index: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest for this machine; an index may list others, and further indexes."""
    found = [
        one
        for one in index["manifests"]
        if one.get("platform", {}).get("architecture", _architecture()) == _architecture()
    ]
    if not found:
        raise ReleaseError(f"base image {place!r}: it has no image for {_architecture()!r}")
    document: dict[str, Any] = json.loads(_blob(place, blobs, found[0]["digest"]))
    return _manifest(place, blobs, document) if document.get("mediaType") in _INDEX else document


def _blob(place: str, blobs: dict[str, bytes], digest: str) -> bytes:
    content = blobs.get(f"blobs/{digest.replace(':', '/')}")
    if content is None:
        raise ReleaseError(f"base image {place!r}: blob {digest!r} is not in it")
    if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
        raise ReleaseError(f"base image {place!r}: blob {digest!r} has other contents than its digest says")
    return content


def _architecture() -> str:
    return _MACHINES.get(platform.machine(), platform.machine())


def _plain(descriptor: dict[str, Any], content: bytes) -> bytes:
    kind = str(descriptor["mediaType"])
    if kind.endswith("gzip"):
        return gzip.decompress(content)
    if kind.endswith("tar"):
        return content
    raise ReleaseError(f"base image: layer {descriptor['digest']!r} is {kind!r}, neither a tar nor one by gzip")


def _remove_what_is_gone(layer: tarfile.TarFile, root: Path) -> None:
    """Remove what a layer says is not there any more (image-spec 1.0, layer.md, "Whiteouts")."""
    for member in layer.getmembers():
        name = Path(member.name).name
        if name == _OPAQUE:
            folder = _inside(root, member.name).parent
            gone = list(folder.iterdir()) if folder.is_dir() else []
        elif name.startswith(_GONE):
            gone = [_inside(root, str(Path(member.name).with_name(name.removeprefix(_GONE))))]
        else:
            continue
        for one in gone:
            _remove(one)


def _extract(layer: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    """Write one member with its mode and owner, as a container engine does."""
    path = _inside(root, member.name)
    if member.islnk():
        _inside(root, member.linkname)
    if not member.isdir():
        # Not written into: another name may be a link to the same file.
        _remove(path)
    layer.extract(member, root, numeric_owner=True, **_TRUSTED)


def _inside(root: Path, name: str) -> Path:
    """Return where a layer's member lies, through links of earlier ones; refuse what is not below the root folder."""
    path = root / name
    if path.name == ".." or not (path.parent.resolve() / path.name).is_relative_to(root.resolve()):
        raise ReleaseError(f"base image: member {name!r} of a layer lies outside of the image's root")
    return path


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
