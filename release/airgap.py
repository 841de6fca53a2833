"""One archive for a cluster without a network: images, chart, manifests, the nodes' runtimes, `kubectl mooring`."""

import hashlib
import io
import tarfile
from pathlib import Path

from release.archives import SUMS
from release.source import Source

# What a release has beside: the wheels and the SBOM of those who install from source.
_PARTS = ("mooring-*.oci.tar", "mooring-*.tgz", "mooring-node-*.tar.gz", "kubectl-mooring-*.tar.gz")


def write(source: Source, out: Path) -> Path:
    """Write the archive from what lies in a release's folder ``out``; return its path."""
    top = f"mooring-{source.version}"
    parts = {path.name: path for pattern in _PARTS for path in sorted(out.glob(pattern))}
    manifests = sorted(path for path in (source.folder / "manifests").rglob("*") if path.is_file())
    parts |= {str(path.relative_to(source.folder)): path for path in manifests}
    path = out / f"{top}-airgap.tar"
    sums = ""
    with tarfile.open(path, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, part in parts.items():
            content = part.read_bytes()
            sums += f"{hashlib.sha256(content).hexdigest()}  {name}\n"
            _add(archive, f"{top}/{name}", content, source.epoch)
        _add(archive, f"{top}/{SUMS}", sums.encode(), source.epoch)
    return path


def _add(archive: tarfile.TarFile, name: str, content: bytes, epoch: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime = len(content), epoch
    archive.addfile(member, io.BytesIO(content))
