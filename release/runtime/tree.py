"""The files of the runtime, from packages and wheels, as a mapping of paths to members.

The interpreter needs no PYTHONHOME: it finds its standard library by the file `../lib/python3.11/os.py` (`getpath.py`
of CPython 3.11). Launchers start it through its own loader, which finds the C library, so no child inherits a setting.
"""

import functools
import platform
import posixpath
import tempfile
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from release import wheels
from release.cache import PACKAGES, WHEELS
from release.locked import of_programs
from release.members import Member
from release.runtime import debian, elf
from release.runtime.compiled import compiled
from release.runtime.launchers import INTERPRETER, launchers
from release.source import ReleaseError, Source

NODE_EXTRAS = ("advertiser", "cni", "cri-shim")
NODE_PROGRAMS = ("mooring-advertiser", "mooring-cni", "mooring-cri-shim", "mooring-node", "mooring-shim-bypass")
PYTHON_VERSION = "3.11"
_PYTHON = "usr/lib/python3.11"
_STDLIB, DIST_PACKAGES = "python/lib/python3.11", "python/lib/python3.11/dist-packages"
# Parts of the standard library that no program uses: tests, tools of developers, what needs further libraries.
_UNUSED = frozenset(
    (
        *("EXTERNALLY-MANAGED", "LICENSE.txt", "__hello__.py", "__phello__", "_aix_support.py", "_bootsubprocess.py"),
        *("_osx_support.py", "antigravity.py", "curses", "dbm", "distutils", "ensurepip", "idlelib", "lib2to3"),
        *("pydoc_data", "sitecustomize.py", "test", "this.py", "tkinter", "turtle.py", "turtledemo", "venv"),
    )
)
_UNUSED_EXTENSIONS = (
    *("_crypt", "_ctypes_test", "_curses", "_curses_panel", "_dbm", "_test", "_xxtestfuzz", "nis"),
    *("ossaudiodev", "readline", "xxlimited"),
)
_UNUSED_ENDINGS = (".c", ".h", ".pxd", ".pyi", ".pyx", ".rst")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
# The client of Kubernetes is used for kubeconfigs; it imports these modules when one of their names is read.
_UNUSED_DIST_PACKAGES = tuple(f"kubernetes/{name}/" for name in ("aio", "client/api", "client/apis", "client/models"))
_TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
# The C library loads it by its name when a thread ends (pthread_exit), so no file names it.
_LOADED_BY_NAME = ("libgcc_s.so.1",)


def build(
    source: Source,
    arch: str,
    cache: Path,
    extras: Iterable[str] = NODE_EXTRAS,
    programs: Sequence[str] = NODE_PROGRAMS,
) -> dict[str, Member]:
    """Return the runtime of programs for one architecture, sorted by path; raise ReleaseError for what is missing.

    ``cache`` is the folder that `release/fetch wheels` and `release/fetch runtime` fill (`release/cache.py`).
    """
    _, root = _packages(source, arch, cache)
    packages, needed = parts(source, arch, cache, extras)
    base = _interpreter(root)
    python = {**base, **_standard_library(root), **_site_packages(needed)}
    members = {
        **python,
        **_libraries(python, root, arch),
        **_licences(root, packages),
        **launchers(source.folder, arch, programs),
    }
    return dict(sorted({**members, **compiled(python, *_compiler(source, cache))}.items()))


def parts(
    source: Source, arch: str, cache: Path, extras: Iterable[str]
) -> tuple[list[debian.Package], list[tuple[str, bytes]]]:
    """Return what a runtime is made of: Debian packages, and wheels by their names, ours first."""
    packages, _ = _packages(source, arch, cache)
    needed = wheels.chosen(of_programs(source.folder, extras), cache / WHEELS, arch)
    return packages, [_our_wheel(source), *map(_read, needed)]


# The packages and Mooring's wheel are the same in the runtime and in every image.
@functools.cache
def _packages(source: Source, arch: str, cache: Path) -> tuple[list[debian.Package], dict[str, Member]]:
    lock = debian.read_lock((source.folder / debian.LOCK).read_text(encoding="utf-8"))
    packages = debian.of_arch(lock, arch)
    return packages, debian.files(packages, cache / PACKAGES)


@functools.cache
def _compiler(source: Source, cache: Path) -> tuple[Mapping[str, Member], str]:
    """Return an interpreter for this machine, and this machine's architecture."""
    arch = _MACHINES.get(machine := platform.machine(), machine)
    if arch not in debian.ARCHITECTURES:
        raise ReleaseError(f"machine {machine!r}: a runtime is built on one of {', '.join(_MACHINES)}")
    _, root = _packages(source, arch, cache)
    python = {**_interpreter(root), **_standard_library(root)}
    return {**python, **_libraries(python, root, arch)}, arch


@functools.cache
def _our_wheel(source: Source) -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="mooring-wheel-") as folder:
        return _read(wheels.build(source, Path(folder)))


def _read(wheel: Path) -> tuple[str, bytes]:
    return wheel.name, wheel.read_bytes()


def _interpreter(root: Mapping[str, Member]) -> dict[str, Member]:
    return {INTERPRETER: Member(_file(root, "usr/bin/python3.11"), 0o755)}


def _standard_library(root: Mapping[str, Member]) -> dict[str, Member]:
    found = {}
    for path in root:
        if not path.startswith(f"{_PYTHON}/"):
            continue
        inner = path.removeprefix(f"{_PYTHON}/")
        if inner.split("/")[0] not in _UNUSED and not _is_unused(inner):
            found[f"{_STDLIB}/{inner}"] = Member(_file(root, path))
    return found


def _is_unused(path: str) -> bool:
    """Return whether a file of the standard library or of a wheel is of no use to a program."""
    extension = posixpath.basename(path) if path.startswith("lib-dynload/") else ""
    return path.endswith(_UNUSED_ENDINGS) or extension.startswith(_UNUSED_EXTENSIONS)


def _site_packages(needed: Iterable[tuple[str, bytes]]) -> dict[str, Member]:
    found = {}
    for wheel, content in needed:
        for path, member in wheels.files(wheel, content).items():
            parts = path.split("/")
            is_left_out = path.startswith(_UNUSED_DIST_PACKAGES) and parts[-1] != "__init__.py"
            if not (is_left_out or _is_unused(path) or {"tests", "test"} & {*parts[:-1]}):
                found[f"{DIST_PACKAGES}/{path}"] = member
    return found


def _libraries(python: Mapping[str, Member], root: Mapping[str, Member], arch: str) -> dict[str, Member]:
    """Return every shared library of packages that the interpreter and extension modules lead to, by its name."""
    read = {path: elf.read(path, member.content) for path, member in python.items() if elf.is_elf(member.content)}
    if wrong := sorted(path for path, one in read.items() if one.arch != arch):
        raise ReleaseError(f"file {wrong[0]!r} of the runtime for {arch}: it is for {read[wrong[0]].arch}")
    # Wheels bring libraries of their own, which they find by their RPATH.
    own = {posixpath.basename(path) for path in read}
    wanted = deque([*_LOADED_BY_NAME, *(name for one in read.values() for name in one.needs)])
    found: dict[str, Member] = {}
    while wanted:
        name = wanted.popleft()
        if name in own or f"lib/{name}" in found:
            continue
        places = (f"{folder}/{_TRIPLETS[arch]}/{name}" for folder in ("lib", "usr/lib"))
        member = next(filter(None, (debian.resolve(root, place) for place in places)), None)
        if member is None:
            raise ReleaseError(f"library {name!r} of the runtime for {arch}: none of {debian.LOCK}'s packages has it")
        found[f"lib/{name}"] = Member(member.content, 0o755)
        wanted += elf.read(name, member.content).needs
    return found


def _licences(root: Mapping[str, Member], packages: Iterable[debian.Package]) -> dict[str, Member]:
    """Return each package's terms, and the texts that they refer to; wheels have theirs in their `*.dist-info`."""
    terms = {f"licenses/{one.name}": Member(_file(root, f"usr/share/doc/{one.name}/copyright")) for one in packages}
    common = "usr/share/common-licenses/"
    texts = {
        f"licenses/common-licenses/{path.removeprefix(common)}": Member(_file(root, path))
        for path in root
        if path.startswith(common)
    }
    return {**terms, **texts}


def _file(root: Mapping[str, Member], path: str) -> bytes:
    member = debian.resolve(root, path)
    if member is None:
        raise ReleaseError(f"file {path!r}: none of {debian.LOCK}'s packages has it")
    return member.content
