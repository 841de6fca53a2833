"""Build the release of a commit. Two runs give equal bytes.

It downloads nothing: release/fetch fills a cache with wheels and Debian packages.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from release import airgap, archives, cache, images, krew, sbom, wheels
from release.locked import REPOSITORY
from release.runtime import ARCHITECTURES, archive
from release.source import ReleaseError, Source, export

SBOM, WHEELS = "sbom.cdx.json", "wheels"


def main() -> int:
    """Make the release; return the exit status."""
    parser = argparse.ArgumentParser(prog="./run release", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist"), help="folder, empty or not there yet")
    parser.add_argument("--commit", default="HEAD", help="what is released; the work tree does not matter")
    parser.add_argument("--cache", type=Path, default=cache.folder(os.environ), help="what release/fetch has filled")
    parser.add_argument("--arch", action="append", choices=ARCHITECTURES, help="of images and runtimes (default: both)")
    parser.add_argument("--without-images", action="store_true", help="make all else")
    parser.add_argument("--download-url", default="", help="the folder where krew will find the plugin's archive")
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="mooring-release-") as folder:
            architectures, with_images = given.arch or ARCHITECTURES, not given.without_images
            make(Path(folder), given.out, given.commit, given.cache, architectures, with_images, given.download_url)
    except (RuntimeError, OSError, subprocess.SubprocessError) as wrong:
        print(f"release: {wrong}", file=sys.stderr)
        return 1
    return 0


def make(
    folder: Path, out: Path, commit: str, cached: Path, architectures: Sequence[str], with_images: bool, url: str = ""
) -> None:
    """Make a release in ``out``, or leave nothing there; ``folder`` is for what lies about meanwhile."""
    if out.exists() and any(out.iterdir()):
        raise ReleaseError(f"folder {str(out)!r}: not empty; a release is all that is in its folder")
    source = export(REPOSITORY, folder / "source", commit)
    try:
        _make(source, out, cached, architectures, with_images, url)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise


def _make(source: Source, out: Path, cached: Path, architectures: Sequence[str], with_images: bool, url: str) -> None:
    (out / WHEELS).mkdir(parents=True)
    ours = wheels.build(source, out / WHEELS)
    others = wheels.locked(source, cached / cache.WHEELS)
    for path in others:
        (out / WHEELS / path.name).write_bytes(path.read_bytes())
    (out / SBOM).write_bytes(sbom.describe(source, ours, others))
    _write_chart(source, out)
    print(f"krew    {krew.write(source, ours, others, out, url)}")
    for arch in architectures:
        print(f"runtime {archive.write(source, arch, archive.node_runtime(source, arch, cached), out)}")
    if with_images:
        for path in images.write(source, architectures, cached, out):
            print(f"image   {path}")
        print(f"air gap {airgap.write(source, out)}")
    files = [path for path in out.rglob("*") if path.is_file()]
    (out / archives.SUMS).write_bytes(archives.sums_of(files, out))
    print(f"release {source.version} of {source.commit}: {len(files)} files in {out}")


def _write_chart(source: Source, out: Path) -> None:
    chart = source.folder / "manifests/helm/mooring"
    paths = sorted(path for path in chart.rglob("*") if path.is_file())
    files = {f"mooring/{path.relative_to(chart)}": path.read_bytes() for path in paths}
    archives.write_tar_gz(out / f"mooring-{source.version}.tgz", files, source.epoch)


if __name__ == "__main__":
    sys.exit(main())
