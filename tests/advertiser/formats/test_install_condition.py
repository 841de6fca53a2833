"""The advertiser says of its node how far the cluster's installer is there, and keeps pods away until it is done."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from advertiser.formats.install_condition import condition_of
from advertiser.host.read_host import Roots, read_host
from cni.server.extracts import make_folders
from devcluster.hosts.sysfs import build
from mooring.annotations.inventory import CNI, CRI_SHIM
from mooring.errors import RecordError
from mooring.files import write_shared
from mooring.records.node_install import NAME, NodeInstall, Phase, dump_node_install, read_node_install
from mooring.records.run_folder import VERSIONS
from tests.support.simulated_nics import MLX5

NOW = datetime(2026, 11, 28, tzinfo=UTC)


@pytest.mark.parametrize(
    ("phase", "status", "reason"),
    [
        ("installed", "False", "Installed"),
        ("failed", "True", "InstallFailed"),
        ("waiting", "Unknown", "WaitsForTurn"),
        ("working", "Unknown", "Installing"),
        ("removed", "False", "Removed"),
    ],
)
def test_the_condition_has_the_release_and_the_reason(phase: Phase, status: str, reason: str) -> None:
    said = condition_of(NodeInstall(NOW, phase, "mooring-0.2.0", "why"))
    assert (said.status, said.reason, said.message) == (status, reason, "mooring-0.2.0: why")


def test_a_reason_is_cut_and_an_unknown_phase_is_refused() -> None:
    text = dump_node_install(NodeInstall(NOW, "failed", "r", "x" * 600))
    assert read_node_install(text) == NodeInstall(NOW, "failed", "r", "x" * 512)
    with pytest.raises(RecordError, match="'half' is not one of"):
        read_node_install(text.replace('"failed"', '"half"'))


@pytest.mark.parametrize(("phase", "counts"), [("waiting", True), ("working", False), ("failed", False)])
def test_the_shim_counts_only_once_its_installation_is_done(tmp_path: Path, phase: Phase, counts: bool) -> None:
    """The scheduler assigns no VFs of a node whose inventory names no shim; a node that waits keeps what it has."""
    build(tmp_path / "sys", MLX5.host(vfs=1))
    make_folders(tmp_path / "run")
    for program in (CNI, CRI_SHIM):
        write_shared(tmp_path / "run" / VERSIONS / program, "0.2.0")
    write_shared(tmp_path / "run" / NAME, dump_node_install(NodeInstall(NOW, phase, "mooring-0.2.0")))
    host = read_host(Roots(tmp_path / "sys", tmp_path / "state", tmp_path / "run"))
    assert (CRI_SHIM in host.programs) is counts
    assert CNI in host.programs
