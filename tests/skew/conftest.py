"""The release before this one, unpacked once."""

import pytest

from tests.skew.earlier import Earlier


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    return Earlier.unpacked(tmp_path_factory.mktemp("earlier"))
