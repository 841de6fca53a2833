"""The contract that holds the pure folders finds I/O that a module of it reaches, by whatever way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PYPROJECT = """
[tool.importlinter]
root_packages = ["toy"]
include_external_packages = true
contract_types = ["pure: tests.support.purity.PureFolders"]
io_modules = ["os", "time"]
edges = ["toy.mixed.files", "toy.lists.*"]

[[tool.importlinter.contracts]]
name = "pure"
type = "pure"
folders = ["toy.plan", "toy.mixed"]
"""
MODULES = {
    "__init__": "",
    "impure": "import os",
    "lists/__init__": "",
    "lists/read": "import os",
    "mixed/__init__": "",
    "mixed/files": "import os",
    "mixed/rules": "",
    "plan/__init__": "",
    "plan/deep/__init__": "",
    "plan/deep/decide": "from toy.mixed import rules",
}


def _is_broken(folder: Path, changed: dict[str, str]) -> bool:
    """Lint a package with some modules changed; return whether the contract is broken."""
    for name, text in (MODULES | changed).items():
        path = folder / "toy" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    (folder / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    code = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    command = [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}"}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert "Contracts: " in ran.stdout, ran.stdout + ran.stderr
    return "pure BROKEN" in ran.stdout


@pytest.mark.parametrize(
    ("module", "text", "is_broken"),
    [
        ("plan/deep/decide", "from toy.mixed import rules", False),
        ("plan/deep/decide", "import time", True),
        ("plan/deep/decide", "from toy import impure", True),
        ("plan/deep/decide", "from toy.mixed import files", True),
        ("plan/deep/decide", "from toy.lists import read", True),
        ("mixed/rules", "import os", True),
        ("mixed/rules", "from toy.mixed import files", True),
        ("mixed/added", "import os", True),
    ],
)
def test_a_contract_is_broken_by_io_in_its_folder_and_by_the_use_of_an_edge(
    module: str, text: str, is_broken: bool, tmp_path: Path
) -> None:
    """Directly, by another folder, by an edge of its own folder; a new module is not an edge."""
    assert _is_broken(tmp_path, {module: text}) == is_broken
