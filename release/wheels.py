"""The wheels of a release: Mooring's own, built from the commit, and those of the lock, with their hashes checked."""

import hashlib
import io
import os
import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.utils import parse_wheel_filename

from release.locked import Locked, of_programs
from release.members import Member
from release.source import ReleaseError, Source

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
# What pip and the build need of the environment; locale and user configuration must not matter.
_SAFE_PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"


def build(source: Source, folder: Path) -> Path:
    """Build Mooring's wheel by its build backend; return it."""
    flags = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--no-index")
    command = [sys.executable, "-m", "pip", "wheel", *flags, "--wheel-dir", str(folder), str(source.folder)]
    environment = {"SOURCE_DATE_EPOCH": str(source.epoch), "PATH": _SAFE_PATH, "LC_ALL": "C.UTF-8", "HOME": str(folder)}
    previous = os.umask(0o022)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    finally:
        os.umask(previous)
    if done.returncode != 0:
        raise ReleaseError(f"the wheel of {str(source.folder)!r} was not built: {done.stderr.strip()[-2000:]}")
    (wheel,) = folder.glob("mooring-*.whl")
    return wheel


def locked(source: Source, cache: Path) -> list[Path]:
    """Return the wheels of what the programs need, for this machine, in the lock's order."""
    return chosen(of_programs(source.folder), cache, _architecture())


def _architecture() -> str:
    return next((arch for arch, machine in _MACHINES.items() if machine == platform.machine()), platform.machine())


def chosen(needed: Iterable[Locked], cache: Path, arch: str) -> list[Path]:
    """Return the wheels of distributions for an architecture; raise ReleaseError for one that is not there.

    A file that has a hash of the lock is the right one, whatever else lies beside it.
    """
    there = _by_name(path for path in cache.glob("*.whl") if _is_for(path, arch))
    return [_of(one, there, cache) for one in needed]


def files(name: str, content: bytes) -> dict[str, Member]:
    """Return the files of a wheel as pip would put them into the folder of packages; scripts are left out."""
    found = {}
    with zipfile.ZipFile(io.BytesIO(content)) as wheel:
        for member in wheel.infolist():
            top, _, inner = member.filename.partition(".data/")
            kind, _, path = inner.partition("/")
            if member.is_dir() or kind in ("scripts", "data"):
                continue
            if inner and kind not in ("purelib", "platlib"):
                raise ReleaseError(f"wheel {name!r}: {member.filename!r} is not a file of a package")
            found[path if inner else top] = Member(wheel.read(member))
    return found


def _is_for(wheel: Path, arch: str) -> bool:
    platforms = {tag.platform for tag in parse_wheel_filename(wheel.name)[3]}
    return any(one == "any" or one.endswith(_MACHINES[arch]) for one in platforms)


def _by_name(paths: Iterable[Path]) -> Mapping[tuple[str, str], list[Path]]:
    found: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(paths):
        name, version, _, _ = parse_wheel_filename(path.name)
        found.setdefault((str(name), str(version)), []).append(path)
    return found


def _of(one: Locked, there: Mapping[tuple[str, str], list[Path]], cache: Path) -> Path:
    candidates = there.get((one.name, one.version), [])
    for path in candidates:
        if hashlib.sha256(path.read_bytes()).hexdigest() in one.sha256:
            return path
    if candidates:
        raise ReleaseError(f"wheel {str(candidates[0])!r}: none of the hashes that requirements.lock has of {one.name}")
    raise ReleaseError(f"wheel of {one.name} {one.version}: not in {str(cache)!r}; release/fetch wheels puts it there")


def name_of(wheel: Path) -> str:
    """Return the canonical name of a wheel's distribution."""
    return str(parse_wheel_filename(wheel.name)[0])


def platform_of(wheels: Iterable[Path]) -> str:
    """Return what the wheels are for, such as ``cp311-x86_64``: those that are compiled fit one Python and machine."""
    named = re.compile(r"-(cp\d+)-\1-.*_(x86_64|aarch64)\.whl$")
    found = {f"{match[1]}-{match[2]}" for path in wheels if (match := named.search(path.name))}
    if len(found) > 1:
        raise ReleaseError(f"wheels are for several Pythons or machines: {', '.join(sorted(found))}")
    return next(iter(found), "any")
