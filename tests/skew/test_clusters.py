"""Upgrade and return, program by program, in the order that docs/operations.md gives, with VFs held all the time."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.skew.earlier import VERSION, Earlier
from tests.skew.mixed_cluster import MixedCluster
from tests.support.polling import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]


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
