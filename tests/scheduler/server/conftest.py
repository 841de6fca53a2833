"""A loop beside an API server."""

import pytest

from devcluster.apiserver.serve import ApiServer
from mooring.kube.client import Client
from tests.scheduler.server.stage import Stage


@pytest.fixture
def stage(server: ApiServer, client: Client) -> Stage:
    return Stage(server, client)
