"""Build the release of a commit. Two runs give equal bytes.

It downloads nothing: release/fetch fills a cache with the wheels, and --base-image names the image's archive.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cli.node.bundle import SBOM, WHEELS, checked
from release import archives, base_image, cache, images, krew, sbom, wheels
from release.base_image import BaseImage
from release.locked import REPOSITORY
from release.source import ReleaseError, Source, export

_NO_BASE = (
    "images: not made without a base image. Give --base-image oci-archive:FILE, the image that the Containerfile names "
    "(`skopeo copy docker://... oci-archive:FILE` where there is a network), or --without-images"
)


def main() -> int:
    """Make the release; return the exit status."""
    parser = argparse.ArgumentParser(prog="./run release", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist"), help="folder, empty or not there yet")
    parser.add_argument("--commit", default="HEAD", help="what is released; the work tree does not matter")
    parser.add_argument("--wheels", type=Path, default=cache.wheels(os.environ), help="the wheels of the lock")
    parser.add_argument("--base-image", default="", help="oci-archive:FILE, the images' base")
    parser.add_argument("--without-images", action="store_true", help="make all else")
    parser.add_argument("--download-url", default="", help="the folder where krew will find the plugin's archive")
    given = parser.parse_args()
    try:
        if not (given.base_image or given.without_images):
            raise ReleaseError(_NO_BASE)
        with tempfile.TemporaryDirectory(prefix="mooring-release-") as folder:
            make(Path(folder), given.out, given.commit, given.wheels, given.base_image, given.download_url)
    except (RuntimeError, OSError, subprocess.SubprocessError) as wrong:
        print(f"release: {wrong}", file=sys.stderr)
        return 1
    return 0


def make(folder: Path, out: Path, commit: str, cached: Path, base: str = "", url: str = "") -> None:
    """Make a release in ``out``, or leave nothing there; ``folder`` is for what lies about meanwhile."""
    if out.exists() and any(out.iterdir()):
        raise ReleaseError(f"folder {str(out)!r}: not empty; a release is all that is in its folder")
    read = base_image.read(base) if base else None
    source = export(REPOSITORY, folder / "source", commit)
    try:
        _make(source, read, folder, out, cached, url)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise


def _make(source: Source, read: BaseImage | None, folder: Path, out: Path, cached: Path, url: str) -> None:
    (out / WHEELS).mkdir(parents=True)
    ours = wheels.build(source, out / WHEELS)
    others = wheels.locked(source, cached)
    for path in others:
        (out / WHEELS / path.name).write_bytes(path.read_bytes())
    (out / SBOM).write_bytes(sbom.describe(source, ours, others))
    _write_chart(source, out)
    bundle = _write_bundle(source, out)
    print(f"krew    {krew.write(source, ours, others, out, url)}")
    if read is not None:
        for path in images.write(source, read, out / WHEELS, folder / "images", out):
            print(f"image   {path}")
    files = [path for path in out.rglob("*") if path.is_file()]
    (out / archives.SUMS).write_bytes(archives.sums_of(files, out))
    print(f"bundle  {bundle}\nrelease {source.version} of {source.commit}: {len(files)} files in {out}")


def _write_chart(source: Source, out: Path) -> None:
    chart = source.folder / "manifests/helm/mooring"
    paths = sorted(path for path in chart.rglob("*") if path.is_file())
    files = {f"mooring/{path.relative_to(chart)}": path.read_bytes() for path in paths}
    archives.write_tar_gz(out / f"mooring-{source.version}.tgz", files, source.epoch)


def _write_bundle(source: Source, out: Path) -> Path:
    """Write what `mooring-node install --bundle` takes, and read it as that does."""
    paths = sorted((out / WHEELS).iterdir())
    files = {SBOM: (out / SBOM).read_bytes(), **{f"{WHEELS}/{path.name}": path.read_bytes() for path in paths}}
    name = f"mooring-{source.version}-{wheels.platform_of(paths)}.bundle.tar"
    bundle = archives.write_tar(out / name, {archives.SUMS: archives.sums(files), **files}, source.epoch)
    checked(bundle)
    return bundle


if __name__ == "__main__":
    sys.exit(main())
