"""A node with a running pod whose rates change, and what its servers log."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.cni.server.rates.pod import Pod


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


@pytest.fixture
def events() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logs:
        yield logs
