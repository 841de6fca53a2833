"""What the programs need, as requirements.lock has it; ``python -m release.locked`` prints that part."""

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[1]
# What pods and nodes run, and the person's own tools.
EXTRAS = ("scheduler", "advertiser", "cri-shim", "cni", "cli", "recompute")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Locked:
    """One distribution as the lock has it: any of the hashes may be its file's."""

    name: str
    version: str
    sha256: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{one}" for one in self.sha256)])


def read_lock(text: str) -> dict[str, Locked]:
    """Return every distribution of a lock, by its canonical name."""
    found: dict[str, Locked] = {}
    for entry in re.split(r"\n(?=[A-Za-z])", text):
        if match := re.match(r"([A-Za-z0-9._-]+)==([^\s;\\]+)", entry):
            name = canonicalize_name(match[1])
            found[name] = Locked(name, match[2], tuple(_HASH.findall(entry)))
    return found


def needed(requirements: Iterable[str], extras: Iterable[str], known: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return the canonical names that requirements lead to on this machine, by what is installed here."""
    chosen = ("", *extras)
    for requirement in map(Requirement, requirements):
        environments = ({"extra": extra} for extra in chosen)
        wanted = requirement.marker is None or any(map(requirement.marker.evaluate, environments))
        name = canonicalize_name(requirement.name)
        if wanted and name != "mooring" and (name not in known or requirement.extras):
            known = needed(requires(name) or (), requirement.extras, known | {name})
    return known


def of_programs(repository: Path = REPOSITORY, extras: Iterable[str] = EXTRAS) -> list[Locked]:
    """Return what a repository's programs need, in the versions of its lock; raise KeyError for what that lacks."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [*project["dependencies"], *_optional(project["optional-dependencies"], extras)]
    lock = read_lock((repository / "requirements.lock").read_text(encoding="utf-8"))
    return [lock[name] for name in sorted(needed(requirements, ()))]


def _optional(requirements: Mapping[str, list[str]], extras: Iterable[str]) -> list[str]:
    return [requirement for extra in extras for requirement in requirements[extra]]


def main() -> int:
    """Print the part of the lock that the programs need; return the exit status."""
    print("\n".join(map(str, of_programs())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
