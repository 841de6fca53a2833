"""Stories of a machine."""

import pytest

from tests.scheduler.group_life import Life
from tests.scheduler.state.cluster import Cluster
from tests.scheduler.state.rates.edited_rates import EditedRates


@pytest.fixture
def cluster(life: Life) -> Cluster:
    return Cluster(life.machine, life.make_node, life.make_pf, life.make_pod)


@pytest.fixture
def edited(life: Life) -> EditedRates:
    return EditedRates(life)
