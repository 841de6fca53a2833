"""A few random pods, decided about by ours and by a real kube-scheduler; `bench.differential` takes many more."""

import os
from pathlib import Path

import pytest

from bench import differential
from devcluster.processes import Processes
from mooring.kube.access import load_access
from tests.support.relay import Relay

pytestmark = pytest.mark.apiserver
CASES = 10


@pytest.mark.parametrize(("seed", "itself"), [(2, False), (3, True)], ids=["ours", "kube-scheduler itself"])
async def test_random_pods_are_decided_about_as_by_kube_scheduler(
    seed: int, itself: bool, own_server: Path, tmp_path: Path
) -> None:
    """Bound where it can be, for the same victims, or waiting for the same reasons."""
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    if not (assets / "kube-scheduler").exists():
        pytest.skip("tier 'apiserver': KUBEBUILDER_ASSETS has no kube-scheduler")
    async with Relay(load_access(str(own_server))) as relay:
        await relay.empty()
    processes = Processes(tmp_path / "logs")
    try:
        differential.start(processes, assets, own_server, tmp_path, itself=itself)
        counts = await differential.run(own_server, seed, CASES, nodes=6)
    finally:
        processes.stop()
    assert counts["bound"] + counts["unschedulable"] == CASES
    assert not counts["differences"]
