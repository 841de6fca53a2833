"""The wheel: what is in it, and that each program needs its own extra and nothing more."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cli import wheelhouse

EXTRAS = {
    "": "cli.node",
    "scheduler": "scheduler",
    "advertiser": "advertiser",
    "cri-shim": "cri_shim",
    "cni": "cni",
    "cli": "cli",
}
PROGRAMS = {"": "mooring-node", "cli": "kubectl-mooring"}
NAMES = {"mooring", "scheduler", "advertiser", "cri_shim", "cni", "cli"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheelhouse.make(tmp_path_factory.mktemp("wheels"), filter(None, EXTRAS))


@pytest.fixture(scope="module")
def content(wheels: Path) -> list[str]:
    (wheel,) = wheels.glob("mooring-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_has_our_packages_and_no_other_top_level_name(content: list[str]) -> None:
    """An unintended top-level name would hide another project's package."""
    names = {path.partition("/")[0] for path in content}
    assert {name for name in names if not name.endswith(".dist-info")} == NAMES
    assert len(names) == len(NAMES) + 1


def test_the_wheel_has_the_units_that_mooring_node_installs(content: list[str]) -> None:
    """They are read from the package, wherever it is installed."""
    here = {f"cli/node/units/{path.name}" for path in (wheelhouse.REPOSITORY / "cli/node/units").iterdir()}
    assert here
    assert here <= set(content)


def _install(requirement: str, wheels: Path, folder: Path) -> str:
    """Install it into an environment of its own, and return that environment's Python."""
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", str(folder)], check=True)
    python = str(folder / "bin/python")
    flags = ("--quiet", "--disable-pip-version-check", "--no-compile", "--no-index", "--find-links", str(wheels))
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", *flags, requirement], check=True)
    return python


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_program_starts_with_its_own_extra_alone(wheels: Path, tmp_path: Path, extra: str) -> None:
    """In an environment with nothing else, its `__main__` is imported and its command prints its usage."""
    python = _install(f"mooring[{extra}]" if extra else "mooring", wheels, tmp_path)
    subprocess.run([python, "-I", "-c", f"import {EXTRAS[extra]}.__main__"], check=True)
    program = tmp_path / "bin" / PROGRAMS.get(extra, f"mooring-{extra}")
    said = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"usage: {program.name.replace('kubectl-', 'kubectl ')}")


def test_a_program_without_its_extra_names_it(wheels: Path, tmp_path: Path) -> None:
    """`pip install mooring` makes the commands of all programs: one line says what each needs, and no traceback."""
    _install("mooring", wheels, tmp_path)
    for extra in filter(None, EXTRAS):
        program = tmp_path / "bin" / PROGRAMS.get(extra, f"mooring-{extra}")
        # The help of the plugin needs no package.
        argv = [program, "nodes" if extra == "cli" else "--help"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 1
        assert line.startswith(f"{program.name.replace('kubectl-', 'kubectl ')}: no Python module ")
        assert line.endswith(f"; the extra is not installed: pip install 'mooring[{extra}]'")
