"""Snapshots of clusters without Mooring: one with a fault of each kind, one without any."""

from pathlib import Path

import pytest

from cli.plugin.assess.collect import captures_of, in_folder
from cli.plugin.assess.snapshot import Snapshot
from devcluster.demo.plugin_cluster import TAKEN_AT, PluginCluster, faulty, healthy


def snapshot_of(cluster: PluginCluster, folder: Path) -> Snapshot:
    """Return what `assess` reads of a cluster, with the captures in a folder."""
    names = [node.name for node in cluster.nodes]
    captures, failed = captures_of(in_folder(str(folder), names), lambda _what, _count: None)
    return Snapshot(cluster.objects(), TAKEN_AT + 60.0, captures, failed)


@pytest.fixture(scope="session")
def faulty_captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faulty")
    faulty().write_captures(folder / "nodes", folder / "trees")
    return folder / "nodes"


@pytest.fixture(scope="session")
def broken(faulty_captures: Path) -> Snapshot:
    return snapshot_of(faulty(), faulty_captures)


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    folder = tmp_path_factory.mktemp("healthy")
    healthy().write_captures(folder / "nodes", folder / "trees")
    return snapshot_of(healthy(), folder / "nodes")
