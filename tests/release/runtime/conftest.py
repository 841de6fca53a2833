"""A runtime for this machine, built from the commit."""

import os
import platform
from collections.abc import Callable, Mapping

import pytest

from release import cache
from release.locked import REPOSITORY
from release.members import Member
from release.runtime import build
from release.source import export

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
Members = Mapping[str, Member]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Members]:
    """Build the runtime of this commit for an architecture."""
    source = export(REPOSITORY, tmp_path_factory.mktemp("source"))
    return lambda arch: build(source, arch, cache.folder(os.environ))


@pytest.fixture(scope="session")
def runtime(built: Callable[[str], Members]) -> Members:
    return built(ARCH)
