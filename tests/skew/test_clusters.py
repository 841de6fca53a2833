"""Upgrade and return, program by program, in the order that docs/operations.md gives, with VFs held all the time."""

import random
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.skew.earlier import VERSION, Earlier
from tests.skew.mixed_cluster import PROGRAMS, MixedCluster
from tests.support.polling import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]

_KILLS = 30


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Chance by the seed; skips the test without --long, before a cluster is started for it."""
    if not request.config.getoption("--long"):
        pytest.skip("runs with --long")
    return random.Random(request.config.getoption("--seed") or 0)


@pytest.fixture
def mixed(tmp_path: Path, earlier: Earlier) -> Iterator[MixedCluster]:
    mixed = MixedCluster(tmp_path, earlier)
    try:
        mixed.start()
        yield mixed
    finally:
        mixed.stop()


def await_version(mixed: MixedCluster, node: str, wanted: str) -> None:
    wait_until(lambda: set(mixed.versions(node).values()) == {wanted}, f"node {node} has {wanted}")


@pytest.mark.timeout(400)
def test_an_upgrade_and_a_return_keep_every_pod_and_its_vfs(mixed: MixedCluster) -> None:
    """Each scheduler places pods on nodes of both releases; a node's programs of both releases work together."""
    await_version(mixed, "a", VERSION)
    mixed.add_pod("old-old", "a", {"min_tx_rate": 5000, "max_tx_rate": 10_000})
    mixed.add_pod("stays-old", "b", {"min_tx_rate": 5000, "max_tx_rate": 10_000})
    mixed.replace("a-cni", is_earlier=False)
    mixed.add_pod("new-cni", "a")
    mixed.replace("a-shim", is_earlier=False)
    mixed.add_pod("new-shim", "a", {"max_tx_rate": 3000})
    mixed.replace("a-advertiser", is_earlier=False)
    await_version(mixed, "a", version("mooring"))
    mixed.apply(is_earlier=False)
    mixed.replace("scheduler", is_earlier=False)
    mixed.add_pod("new-new", "a", {"min_tx_rate": 5000}, {})
    mixed.add_pod("new-old", "b", {"min_tx_rate": 5000}, {})
    assert mixed.exactly_applied().held
    for is_earlier in (True, False):
        printed = mixed.printed(is_earlier=is_earlier)
        assert [pod for pod in mixed.api.pods() if pod not in printed] == []
    for pod in ("old-old", "stays-old"):
        mixed.change_rates(pod, 6000, 12_000)

    mixed.replace("scheduler", is_earlier=True)
    mixed.add_pod("old-new", "a", {"min_tx_rate": 5000}, {})
    mixed.change_rates("old-old", 7000, 14_000)
    mixed.apply(is_earlier=True)
    mixed.replace("a-advertiser", is_earlier=True)
    mixed.replace("a-shim", is_earlier=True)
    mixed.add_pod("old-shim", "a", {"max_tx_rate": 3000})
    mixed.replace("a-cni", is_earlier=True)
    mixed.add_pod("old-cni", "a")
    await_version(mixed, "a", VERSION)
    assert mixed.given_once().held
    assert mixed.rates("old-old") == (7000, 14_000)
    assert mixed.delete_all().held


@pytest.mark.timeout(900)
def test_programs_of_both_releases_go_on_after_kills(chance: random.Random, mixed: MixedCluster) -> None:
    """SIGKILL to any program while a pod starts; that of a random release goes on, and every VF comes back."""
    for number in range(_KILLS):
        name = chance.choice(("scheduler", *(f"{node}-{program}" for node in "ab" for program in PROGRAMS)))
        mixed.request_pod(f"p{number}", chance.choice("ab"))
        mixed.replace(name, is_earlier=chance.random() < 0.5, is_killed=True)
        mixed.await_pod(f"p{number}")
        if number >= 5:
            mixed.delete_pod(f"p{number - 5}")
    assert mixed.given_once().held
    assert mixed.delete_all().held
