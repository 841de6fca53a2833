"""A stand-in for the image python:3.11-slim: this machine's Python at /usr/local, its libraries, busybox."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pip

from devcluster.runtime.images import write_root

_LEFT_OUT = ("test", "tests", "idlelib", "tkinter", "lib2to3", "__pycache__", "config-*", "ensurepip")
# Extension modules need them, and Debian's slim images have them: libc6, libstdc++6 and libgcc-s1.
_RUNTIMES = ("libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1")


def make(folder: Path) -> Path:
    """Make the stand-in's root folder; return it."""
    write_root(folder)
    for name, numbers in (("null", (1, 3)), ("urandom", (1, 9))):
        os.mknod(folder / "dev" / name, 0o20666, os.makedev(*numbers))
    library = Path(f"lib/python3.{sys.version_info.minor}")
    installed, local = Path(sys.base_prefix), folder / "usr/local"
    ignored = shutil.ignore_patterns("site-packages", *_LEFT_OUT)
    shutil.copytree(installed / library, local / library, ignore=ignored, symlinks=True)
    # Beside the standard library: Debian's interpreter does not look into site-packages, others not into dist-packages.
    shutil.copytree(Path(pip.__file__).parent, local / library / "pip", ignore=ignored)
    (local / "bin").mkdir()
    shutil.copy2(Path(sys.executable).resolve(), local / "bin/python3")
    for shared in sorted(_libraries(local)):
        target = folder / str(shared).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(shared, target)
    return folder


def _libraries(local: Path) -> Iterator[Path]:
    """Yield the shared libraries of the interpreter and its modules, under the paths where they look for them."""
    for program in (local / "bin/python3", *local.rglob("lib-dynload/*.so")):
        listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
        yield from (Path(word) for word in listed.split() if word.startswith("/"))
    cache = subprocess.run(
        ["ldconfig", "-p"], capture_output=True, text=True, check=True, env={"PATH": "/sbin:/usr/sbin"}
    )
    for line in cache.stdout.splitlines():
        if line.split()[:1] and line.split()[0] in _RUNTIMES and "x86-64" in line:
            yield Path(line.split()[-1])
