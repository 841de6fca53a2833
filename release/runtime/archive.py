"""The archive of a runtime, with what names its contents: `RELEASE.json` and the SBOM.

`mooring-node install` verifies every file by RELEASE.json (`cli/node/runtime.py`). The hash of RELEASE.json is part of
the folder's name, so equal names mean equal contents.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from cli.node.runtime import RELEASE, SBOM, VERSION, folder_name
from release import archives, sbom
from release.members import Member
from release.runtime.tree import NODE_EXTRAS, PYTHON_VERSION, build, parts
from release.source import Source


def node_runtime(source: Source, arch: str, cache: Path) -> dict[str, Member]:
    """Return the runtime of nodes for one architecture, whole: with its SBOM and RELEASE.json."""
    members = build(source, arch, cache)
    packages, wheels = parts(source, arch, cache, NODE_EXTRAS)
    members[SBOM] = Member(sbom.describe_runtime(source, arch, packages, wheels))
    document = {
        "v": VERSION,
        "version": source.version,
        "commit": source.commit,
        "arch": arch,
        "python": PYTHON_VERSION,
        "files": {path: hashlib.sha256(member.content).hexdigest() for path, member in sorted(members.items())},
    }
    members[RELEASE] = Member((json.dumps(document, indent=1, sort_keys=True) + "\n").encode())
    return dict(sorted(members.items()))


def write(source: Source, arch: str, members: Mapping[str, Member], out: Path) -> Path:
    """Write the archive of a runtime to ``out``; return it."""
    top = folder_name(source.version, members[RELEASE].content)
    files = {f"{top}/{path}": member.content for path, member in members.items()}
    programs = frozenset(f"{top}/{path}" for path, member in members.items() if member.mode & 0o100)
    return archives.write_tar_gz(
        out / f"mooring-node-{source.version}-linux-{arch}.tar.gz", files, source.epoch, programs
    )
