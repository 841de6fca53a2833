"""The console scripts of the distribution."""

import subprocess
import sys
import tomllib
from importlib.metadata import version

import pytest

from docs.hooks.texts import ROOT

SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


# kubectl runs this one, and its words are those of the plugin's command line.
@pytest.mark.parametrize("script", sorted(SCRIPTS.keys() - {"kubectl_complete-mooring"}))
def test_every_program_says_its_version(script: str) -> None:
    """By its name, in one line, and whatever else it would need to start."""
    module, _, function = SCRIPTS[script].partition(":")
    start = f"import sys; from {module} import {function}; sys.exit({function}())"
    asked = [sys.executable, "-c", start, "--version"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    program = script.replace("kubectl-", "kubectl ")
    assert (done.stdout, done.stderr) == (f"{program} {version('mooring')}\n", "")
