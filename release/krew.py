"""`kubectl mooring` for krew: an archive with all that it needs but Python, and the manifest that names its hash.

The manifest's format is krew's: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/ and pkg/index/types.go.
A release is for one Python and machine, as its wheels are: a manifest for several lists their platforms together.
"""

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from release import archives, wheels
from release.locked import of_programs
from release.source import ReleaseError, Source

MANIFEST = "mooring.yaml"
_EXTRAS = ("cli",)
# Python's names of machines, and krew's.
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_COMMANDS = {"kubectl-mooring": "kubectl", "kubectl_complete-mooring": "kubectl_complete"}
_COMMAND = """\
#!/usr/bin/env {python}
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
from mooring.program.commands import {function}

sys.exit({function}())
"""
_DESCRIPTION = """\
Shows which pods hold which SR-IOV VFs, which pods and groups wait and why, and
what is wrong with an installation of Mooring.
"""
_CAVEATS = """\
It needs {python} on the PATH. To complete it by TAB, link its second command:
  ln -s "$(dirname "$(readlink -f "$(command -v kubectl-mooring)")")/kubectl_complete-mooring" \\
    "${{KREW_ROOT:-$HOME/.krew}}/bin/"
"""


def write(source: Source, ours: Path, locked: Sequence[Path], out: Path, download_url: str) -> Path:
    """Write the archive and its manifest; return the archive.

    Without ``download_url`` krew can install it from the file only.
    """
    tag, _, machine = wheels.platform_of(locked).partition("-")
    if machine not in _MACHINES:
        raise ReleaseError(f"krew: machine {machine!r} must be one of {', '.join(_MACHINES)}")
    python = f"python{tag[2]}.{tag[3:]}"
    names = {one.name for one in of_programs(source.folder, _EXTRAS)}
    needed = [ours, *(path for path in locked if wheels.name_of(path) in names)]
    commands = {name: _COMMAND.format(python=python, function=one).encode() for name, one in _COMMANDS.items()}
    files = {**commands, "LICENSE": (source.folder / "LICENSE").read_bytes(), **_unpack(needed)}
    name = f"kubectl-mooring-{source.version}-linux-{_MACHINES[machine]}.tar.gz"
    archive = archives.write_tar_gz(out / name, files, source.epoch, frozenset(commands))
    uri = f"{download_url.rstrip('/')}/{name}" if download_url else name
    manifest = _manifest(source.version, archive, uri, _MACHINES[machine], python)
    (out / MANIFEST).write_text(yaml.safe_dump(manifest, sort_keys=False), encoding="utf-8")
    return archive


def _unpack(paths: Sequence[Path]) -> dict[str, bytes]:
    """Return the files of wheels below lib/, sorted by name."""
    files: dict[str, bytes] = {}
    for path in paths:
        with zipfile.ZipFile(path) as wheel:
            for member in wheel.infolist():
                if ".data/" in member.filename:
                    raise ReleaseError(f"wheel {path.name!r}: {member.filename!r} is not a file of a package")
                if not member.is_dir():
                    files[f"lib/{member.filename}"] = wheel.read(member)
    return dict(sorted(files.items()))


def _manifest(version: str, archive: Path, uri: str, machine: str, python: str) -> Mapping[str, object]:
    platform = {
        "selector": {"matchLabels": {"os": "linux", "arch": machine}},
        "uri": uri,
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "bin": "kubectl-mooring",
    }
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "mooring"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Show which pods hold which SR-IOV VFs, and why",
            "description": _DESCRIPTION,
            "caveats": _CAVEATS.format(python=python),
            "platforms": [platform],
        },
    }
