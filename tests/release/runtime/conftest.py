"""The runtime of the commit's release."""

import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from release import cache
from release.locked import REPOSITORY
from release.members import Member
from release.runtime.archive import node_runtime
from release.source import export
from tests.support.built_release import ARCH, built_release

Members = Mapping[str, Member]


@pytest.fixture(scope="session")
def runtime() -> Members:
    """Return the files of the runtime for this machine."""
    (path,) = built_release().glob(f"mooring-node-*-linux-{ARCH}.tar.gz")
    with tarfile.open(path) as archive:
        found = {one.name.partition("/")[2]: (archive.extractfile(one), one.mode) for one in archive}
        return {name: Member(file.read(), mode) for name, (file, mode) in found.items() if file is not None}


@pytest.fixture
def built(runtime: Members, tmp_path: Path) -> Callable[[str], Members]:
    """Return the runtime for an architecture; that of another one is built."""

    def build(arch: str) -> Members:
        return runtime if arch == ARCH else node_runtime(export(REPOSITORY, tmp_path), arch, cache.folder(os.environ))

    return build
