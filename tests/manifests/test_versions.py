"""Manifests name the images of this release."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = re.compile(r"(?:newTag|app\.kubernetes\.io/version|appVersion|^version): *\"?([0-9][^\"\s]*)", re.MULTILINE)


def test_every_version_in_the_manifests_is_the_releases() -> None:
    """Tags of images, labels, and the chart's own version."""
    release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    files = [*ROOT.glob("manifests/**/kustomization.yaml"), ROOT / "manifests/helm/mooring/Chart.yaml"]
    found = {(str(file.relative_to(ROOT)), text) for file in files for text in VERSION.findall(file.read_text())}
    assert len({file for file, _ in found}) >= 3
    assert {(file, text) for file, text in found if text != release} == set()
