"""The page of dependencies lists what pyproject.toml has, by extra, with the sizes of the wheels that are locked."""

import math
import os
import re
import tomllib
from collections import defaultdict

import pytest

from release import cache
from tests.docs.pages import ROOT

_ROW = re.compile(r"^- `([\w-]+)` \((.+?); ([\d.]+) MB\)", re.MULTILINE)
_NAME = re.compile(r"[\w-]+")
_ROWS = _ROW.findall((ROOT / "docs/dependencies.md").read_text(encoding="utf-8"))


def _extras_by_package() -> dict[str, str]:
    """Return the extras that need each package, in the order of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = defaultdict(list)
    for extra, requirements in project["optional-dependencies"].items():
        for requirement in requirements:
            extras[_first_name(requirement)].append(extra)
    everywhere = {_first_name(requirement): "every program" for requirement in project["dependencies"]}
    return {name: ", ".join(names) for name, names in extras.items()} | everywhere


def _first_name(requirement: str) -> str:
    match = _NAME.match(requirement)
    assert match is not None, requirement
    return match[0]


def test_each_runtime_dependency_has_its_row_with_its_extras() -> None:
    """A dependency that is new or gone is new or gone on the page."""
    assert {name: extras for name, extras, _ in _ROWS} == _extras_by_package()
    assert [name for name, _, _ in _ROWS] == sorted(name for name, _, _ in _ROWS)


@pytest.mark.wheels
def test_the_sizes_are_those_of_the_wheels() -> None:
    """The figures follow an update of requirements.lock; of two architectures they are those of amd64."""
    folder = cache.wheels(os.environ)
    sizes = {}
    for name, _, _ in _ROWS:
        files = folder.glob(f"{name.replace('-', '_')}-[0-9]*.whl")
        [wheel] = [file for file in files if not file.stem.endswith("_aarch64")]
        sizes[name] = math.ceil(wheel.stat().st_size / 1e5) / 10
    assert sizes == {name: float(size) for name, _, size in _ROWS}
