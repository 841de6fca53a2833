"""Make a wheelhouse without a network: Mooring's wheel by its own build, the others from what is installed here.

An installed distribution has a list of its files (RECORD) and its wheel's own description (WHEEL). Packed again, they
are the wheel that it came from, except for scripts, which an installer makes from the entry points.
"""

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from release.locked import needed

REPOSITORY = Path(__file__).parents[2]


def make(folder: Path, extras: Iterable[str]) -> Path:
    """Fill ``folder`` with Mooring's wheel and all that its extras need; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = build_wheel(folder)
    for name in sorted(needed(_requirements(wheel), frozenset(extras))):
        _pack(distribution(name), folder)
    return folder


def build_wheel(folder: Path) -> Path:
    """Build Mooring's wheel by its build backend; return it."""
    flags = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "wheel", *flags, "--wheel-dir", str(folder), str(REPOSITORY)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = folder.glob("mooring-*.whl")
    return wheel


def _requirements(wheel: Path) -> list[str]:
    """Return a wheel's requirements; the editable installation may be older than pyproject.toml."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(path).decode().splitlines()
    return [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]


def _pack(installed: Distribution, folder: Path) -> None:
    name = installed.metadata["Name"].replace("-", "_").replace(".", "_")
    with zipfile.ZipFile(folder / f"{name}-{installed.version}-{_tag(installed)}.whl", "w") as wheel:
        record = "".join(_put(wheel, path, content) for path, content in _files(installed))
        described = next(path for path, _ in _files(installed) if path.endswith(".dist-info/METADATA"))
        wheel.writestr(str(Path(described).parent / "RECORD"), record)


def _tag(installed: Distribution) -> str:
    """Return the tags of a wheel as its name has them: each part's values joined."""
    lines = (installed.read_text("WHEEL") or "").splitlines()
    tags = [line.partition(": ")[2].split("-") for line in lines if line.startswith("Tag: ")]
    return "-".join(".".join(dict.fromkeys(values)) for values in zip(*tags, strict=True))


def _files(installed: Distribution) -> Iterator[tuple[str, bytes]]:
    for path in installed.files or ():
        own = not str(path).startswith("..") and "__pycache__" not in path.parts
        if own and path.name not in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
            yield str(path), path.read_binary()


def _put(wheel: zipfile.ZipFile, path: str, content: bytes) -> str:
    wheel.writestr(path, content)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}\n"


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2:])
