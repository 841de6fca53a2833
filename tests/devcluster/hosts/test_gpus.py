"""The GPUs of a simulated host, as Mooring's advertiser reads them."""

from pathlib import Path

from advertiser.host.gpu.documents import GpusFile
from advertiser.host.gpu.nvml import Nvml
from advertiser.host.gpu.read_gpus import GpuSources
from devcluster.hosts.boot import start_fresh
from devcluster.hosts.layout import Layout
from devcluster.hosts.nic import describe_host
from mooring.gpu.cdi_folders import CdiFolders
from mooring.gpu.inventory import common_bridges


def test_half_of_the_gpus_lie_below_the_switch_of_the_nic(tmp_path: Path) -> None:
    """All are on offer, each with a CDI device of its own; after a reboot they are the same."""
    host, layout = describe_host("n1", 1, gpus=4), Layout.at(tmp_path, "n1")
    found = []
    for _ in range(2):
        start_fresh(host, layout)
        file = GpusFile(tmp_path / "gpus.yaml", required=False)
        sources = GpuSources(layout.sys, layout.proc, CdiFolders((layout.cdi,)), file, Nvml(_no_library))
        found.append(sources.inventory("n1"))
    assert found[0] == found[1]
    assert found[0].out == ()
    assert [common_bridges(gpu.pcie, host.pfs[0].pcie) for gpu in found[0].gpus] == [0, 0, 2, 2]
    assert {gpu.numa for gpu in found[0].gpus} == {0}
    assert {gpu.model for gpu in found[0].gpus} == {"NVIDIA H100 80GB HBM3"}


def test_a_host_without_gpus_has_no_trace_of_any(tmp_path: Path) -> None:
    """Neither specifications nor the driver's files."""
    layout = Layout.at(tmp_path, "n1")
    start_fresh(describe_host("n1", 1), layout)
    assert not layout.cdi.exists()
    assert not layout.proc.exists()


def _no_library() -> None:
    raise ImportError("no module named 'pynvml'")
