"""Where `release/fetch` leaves what it fetches."""

import shutil
from collections.abc import Mapping
from pathlib import Path

# Below the folder: the wheels of both architectures, and the runtime's Debian packages.
WHEELS, PACKAGES = "distributions", "packages"


def wheels(environment: Mapping[str, str]) -> Path:
    """Return the folder of the wheels that the programs need, whether it is filled or not."""
    return folder(environment) / WHEELS


def packages(environment: Mapping[str, str]) -> Path:
    """Return the folder of the Debian packages of the runtime, whether it is filled or not."""
    return folder(environment) / PACKAGES


def helm(environment: Mapping[str, str]) -> Path | None:
    """Return the helm that was fetched, else the machine's own."""
    fetched = folder(environment) / "helm/helm"
    own = shutil.which("helm")
    return fetched if fetched.exists() else Path(own) if own else None


def folder(environment: Mapping[str, str]) -> Path:
    """Return the folder that `release/fetch` fills."""
    own = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or "/root") / ".cache")
    return Path(own) / "mooring"
