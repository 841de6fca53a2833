"""The release before this one, which `freeze` has packed: its programs, and the environment in which they run."""

import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VERSION = "0.1.0"
_PACKED = Path(__file__).with_name("earlier.zip")


@dataclass(frozen=True, slots=True)
class Earlier:
    """The unpacked release. Its packages come before this tree's, and other packages are this environment's."""

    folder: Path

    @classmethod
    def unpacked(cls, folder: Path) -> "Earlier":
        with zipfile.ZipFile(_PACKED) as packed:
            packed.extractall(folder)
        return cls(folder)

    @property
    def environment(self) -> Mapping[str, str]:
        # Without the second variable `python -m` finds the packages of the current folder first.
        return {"PYTHONPATH": str(self.folder), "PYTHONSAFEPATH": "1"}

    @property
    def manifests(self) -> Path:
        return self.folder / "manifests"

    def run(self, script: str, *arguments: str, given: str = "") -> str:
        """Run a script in the release with a text as its input; return what it prints."""
        command = (sys.executable, "-c", script, *arguments)
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, env=self.environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
