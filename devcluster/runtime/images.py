"""Build the two images of the development cluster from busybox-static: nothing is pulled.

Both are in one OCI image layout tarball (image-spec 1.0, image-layout.md), which ``ctr images import`` reads. One is
busybox with its applet links; the pause image has the same root file system, and its process only sleeps. Equal busybox
binaries give equal bytes.
"""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

BUSYBOX = "docker.io/library/busybox:latest"
PAUSE = "docker.io/library/pause:devcluster"
DEBIAN_BUSYBOX = Path("/bin/busybox")

_FOREVER_S = "2147483647"
_SEARCH_PATH = "PATH=/bin"
_FOLDERS = ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp")
_ACCOUNTS = {"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n"}


def write_images(
    path: Path, names: Sequence[str] = (), busybox: Path = DEBIAN_BUSYBOX, asleep: Sequence[str] = ()
) -> Path:
    """Write the tarball to ``path`` and return it.

    ``names`` are further names of the busybox image, ``asleep`` of the pause image: for pods without a command.
    """
    blobs: dict[str, bytes] = {}
    layer = add_blob(blobs, _layer(busybox.read_bytes(), _applets(busybox)), "application/vnd.oci.image.layer.v1.tar")
    shell = _image(blobs, layer, {"Cmd": ["sh"]})
    pause = _image(blobs, layer, {"Entrypoint": ["/bin/sleep", _FOREVER_S]})
    manifests = [named(shell, name) for name in (BUSYBOX, *names)]
    return write_layout(path, blobs, [*manifests, *(named(pause, name) for name in (PAUSE, *asleep))])


def write_layout(path: Path, blobs: Mapping[str, bytes], manifests: Sequence[Mapping[str, object]]) -> Path:
    """Write an OCI layout's tarball with these blobs, and an index of these manifests; return its path."""
    index = {"schemaVersion": 2, "manifests": list(manifests)}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index)}
    files |= {f"blobs/sha256/{digest}": content for digest, content in sorted(blobs.items())}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_tar({name: (content, 0o644) for name, content in files.items()}))
    return path


def write_folder_image(path: Path, name: str, root: Path, process: Mapping[str, object]) -> Path:
    """Write the tarball of one image to ``path`` and return it: its only layer is ``root``, its files are root's.

    ``process`` is the image's configuration (Entrypoint, Env, User, as image-spec 1.0's config.md has them).
    """
    layer_tarball = path.with_suffix(".layer")
    with tarfile.open(layer_tarball, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(root, ".", filter=_owned_by_root)
    blobs: dict[str, bytes] = {}
    layer = add_blob(blobs, layer_tarball.read_bytes(), "application/vnd.oci.image.layer.v1.tar")
    layer_tarball.unlink()
    return write_layout(path, blobs, [named(_image(blobs, layer, process), name)])


def write_root(folder: Path, busybox: Path = DEBIAN_BUSYBOX) -> Path:
    """Lay out the images' root file system in ``folder`` and return it, for a runtime without snapshots."""
    for name in _FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, text in _ACCOUNTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copyfile(busybox, folder / "bin/busybox")
    (folder / "bin/busybox").chmod(0o755)
    for applet in _applets(busybox):
        link = folder / "bin" / applet
        link.unlink(missing_ok=True)
        link.symlink_to("busybox")
    return folder


def full_name(image: str) -> str:
    """Return an image's name as the runtime stores it: ``busybox`` is ``docker.io/library/busybox:latest``."""
    first, _, rest = image.partition("/")
    with_host = image if rest and ("." in first or ":" in first or first == "localhost") else None
    path = with_host or (f"docker.io/{image}" if rest else f"docker.io/library/{image}")
    return path if ":" in path.rpartition("/")[2] or "@" in path else f"{path}:latest"


def _image(blobs: dict[str, bytes], layer: Mapping[str, object], process: Mapping[str, object]) -> Mapping[str, object]:
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": [_SEARCH_PATH], **process},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    configuration = add_blob(blobs, _json(config), "application/vnd.oci.image.config.v1+json")
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": configuration, "layers": [layer]}
    return add_blob(blobs, _json(manifest), kind)


def named(manifest: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return a manifest's descriptor for an index, with the image's name."""
    return {**manifest, "annotations": {"io.containerd.image.name": name}}


def add_blob(blobs: dict[str, bytes], content: bytes, media_type: str) -> Mapping[str, object]:
    """Add a blob by its digest; return its descriptor."""
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _applets(busybox: Path) -> Sequence[str]:
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    return sorted(set(listed.stdout.split()) - {"busybox"})


def _layer(busybox: bytes, applets: Sequence[str]) -> bytes:
    files = {"bin/busybox": (busybox, 0o755)} | {name: (text.encode(), 0o644) for name, text in _ACCOUNTS.items()}
    return _tar(files, _FOLDERS, {f"bin/{applet}": "busybox" for applet in applets})


def _tar(
    files: Mapping[str, tuple[bytes, int]], folders: Sequence[str] = (), links: Mapping[str, str] | None = None
) -> bytes:
    """Return an uncompressed tarball; every time in it is 0 and every owner is root, so that it depends on no clock."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for folder in folders:
            archive.addfile(_member(folder, tarfile.DIRTYPE, 0o755))
        for name, (content, mode) in files.items():
            member = _member(name, tarfile.REGTYPE, mode)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = _member(name, tarfile.SYMTYPE, 0o777)
            member.linkname = target
            archive.addfile(member)
    return output.getvalue()


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _member(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode = kind, mode
    return member


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
