"""Where `release/fetch` leaves what it fetches."""

import shutil
from collections.abc import Mapping
from pathlib import Path


def wheels(environment: Mapping[str, str]) -> Path:
    """Return the folder of the wheels that the programs need, whether it is filled or not."""
    return _cache(environment) / "wheels"


def helm(environment: Mapping[str, str]) -> Path | None:
    """Return the helm that was fetched, else the machine's own."""
    fetched = _cache(environment) / "helm/helm"
    own = shutil.which("helm")
    return fetched if fetched.exists() else Path(own) if own else None


def _cache(environment: Mapping[str, str]) -> Path:
    own = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or "/root") / ".cache")
    return Path(own) / "mooring"
