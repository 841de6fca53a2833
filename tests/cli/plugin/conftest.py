"""API servers to read: one that allows every request, and one with RBAC."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cli.plugin.cluster import Served, serving


@pytest.fixture
async def served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Served]:
    async with serving(tmp_path, capsys.readouterr) as cluster:
        yield cluster


@pytest.fixture
async def guarded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Served]:
    """Serve a cluster with RBAC."""
    async with serving(tmp_path, capsys.readouterr, rbac=True) as cluster:
        yield cluster
