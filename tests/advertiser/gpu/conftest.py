"""Hosts with GPUs in a temporary folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.advertiser.gpu.trees import Host, build_host, load_host

MakeHost = Callable[[str], Host]


@pytest.fixture
def make_host(tmp_path: Path) -> MakeHost:
    """Build a host by its name."""
    return lambda name: build_host(tmp_path, load_host(name))
