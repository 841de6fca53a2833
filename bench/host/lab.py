"""Which program boots the lab kernel: one that MOORING_LAB names, or the repository's own."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

_LAB = Path(__file__).resolve().parents[2] / "devcluster/lab"
MISSING = "no lab kernel: ./run lab builds it (or MOORING_LAB names a program that boots one)"


def find_lab(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the lab's ``run``, None where there is none.

    The repository's own counts once ``./run lab`` has built the kernel of the present sources. An empty MOORING_LAB
    says that there is none. Where MOORING_LAB_KERNEL names a kernel, ``run`` boots that one or says why it cannot.
    """
    if (named := environment.get("MOORING_LAB")) is not None:
        return Path(named) if named else None
    if "MOORING_LAB_KERNEL" in environment:
        return _LAB / "run"
    asked = subprocess.run([_LAB / "build", "--path"], capture_output=True, text=True, check=True)
    return _LAB / "run" if Path(asked.stdout.strip()).exists() else None
