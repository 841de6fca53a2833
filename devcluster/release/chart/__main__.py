"""``python -m devcluster.release.chart``: write the Helm chart's templates and its values from the kustomizations.

With ``--check`` nothing is written; the exit status is 1 where what is checked in differs from what would be.
"""

import argparse
import sys
from pathlib import Path
from string import Template

from devcluster.release.chart.kustomize import MANIFESTS
from devcluster.release.chart.templates import defaults, templates

CHART = MANIFESTS / "helm/mooring"
_VALUES = Path(__file__).with_name("values.yaml")


def generated() -> dict[str, str]:
    """Return the text of every file of the chart that is made, by its path in the chart."""
    head = "# Made by manifests/helm/generate from devcluster/release/chart/values.yaml and manifests/base.\n"
    values = head + Template(_VALUES.read_text(encoding="utf-8")).substitute(defaults())
    return {"values.yaml": values, **{f"templates/{name}": text for name, text in templates().items()}}


def differences() -> list[str]:
    """Return the files of the chart that are not as they would be made now."""
    return [path for path, text in generated().items() if _read(CHART / path) != text]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def main() -> int:
    """Write or check the chart; return the exit status."""
    parser = argparse.ArgumentParser(prog="manifests/helm/generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail where a file would change")
    if parser.parse_args().check:
        differing = differences()
        for path in differing:
            print(f"manifests/helm/mooring/{path}: not what manifests/helm/generate makes", file=sys.stderr)
        return 1 if differing else 0
    for path, text in generated().items():
        (CHART / path).parent.mkdir(parents=True, exist_ok=True)
        (CHART / path).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
