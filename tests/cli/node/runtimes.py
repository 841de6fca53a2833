"""Small runtimes: the form of a release's, with files that say little."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

from cli.node.runtime import RELEASE, folder_name, machine

FILES = {"bin/mooring-cni": b"program", "lib/libc.so.6": b"library", "sbom.cdx.json": b"{}"}


def document(files: Mapping[str, bytes], **changed: object) -> bytes:
    """Return RELEASE.json for files."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    whole = {"v": 1, "version": version("mooring"), "arch": machine(), "files": digests, **changed}
    return json.dumps(whole).encode()


def whole(files: Mapping[str, bytes] = FILES, **changed: object) -> dict[str, bytes]:
    """Return the files of a runtime by their paths in its archive."""
    text = document(files, **changed)
    top = folder_name(version("mooring"), text)
    return {f"{top}/{name}": content for name, content in {**files, RELEASE: text}.items()}


def archive(path: Path, files: Mapping[str, bytes], further: Iterable[tarfile.TarInfo] = ()) -> Path:
    """Write an archive; files below bin/ can be executed."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755 if "/bin/" in name else 0o644
            tar.addfile(member, io.BytesIO(content))
        for member in further:
            tar.addfile(member)
    return path
