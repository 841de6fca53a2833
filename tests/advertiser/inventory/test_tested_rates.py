"""Rates that were requested, and those that a hardware test has shown to work on this host."""

import json
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from advertiser.host.read_host import Roots, read_host
from advertiser.inventory.build_inventory import InventoryResult, build_inventory
from advertiser.inventory.facts import ClusterFacts, Host, Netdev, PciFunction, RdmaDevice, RdmaPort, Vf
from advertiser.inventory.offer import EVERYTHING
from advertiser.publish.metrics import Metrics
from advertiser.show import print_table
from mooring.annotations.inventory import Pf, dump_inventory, read_inventory
from mooring.errors import AnnotationError
from mooring.hardware_folder import keep_result
from mooring.records import hardware_result
from mooring.records.hardware_result import MAX_RATE, MIN_RATE, HardwareResult, Outcome

PCI, KERNEL = "0000:3b:00.0", "6.18.1"


def result_of(min_rate: Outcome, max_rate: Outcome, *, kernel: str = KERNEL) -> HardwareResult:
    checks: dict[str, Outcome] = {MIN_RATE: min_rate, MAX_RATE: max_rate}
    return HardwareResult(PCI, "mlx5_core", kernel, datetime(2026, 11, 22, tzinfo=UTC), checks)


def inventory(result: HardwareResult | None, driver: str = "mlx5_core") -> InventoryResult:
    function = PciFunction(
        PCI,
        *(True, "1", "1", "2", "1", driver),
        netdevs=(Netdev("p0", type="1", speed="100000", operstate="up"),),
        rdma=(RdmaDevice("r0", (RdmaPort("100 Gb/sec (4X EDR)", "4: ACTIVE"),)),),
        vfs={0: Vf("0000:3b:00.2", exists=True, driver=driver, netdev=True, rdma=True)},
    )
    results = {} if result is None else {PCI: result}
    host = Host("boot", (function,), kernel=KERNEL, hardware_results=results)
    return build_inventory(host, EVERYTHING, ClusterFacts(), "n1")


def published(result: HardwareResult | None, driver: str = "mlx5_core") -> Pf:
    """Return the PF as a reader of the annotation has it."""
    (pf,) = read_inventory(dump_inventory(inventory(result, driver).inventory)).pfs
    return pf


def test_without_a_test_a_rate_is_requested_and_no_more() -> None:
    """On Linux 7.2 mlx5 stores a min rate that the firmware refused, and reports it (esw_qos_set_node_min_rate)."""
    pf = published(None)
    assert pf.tested == {}
    assert [pf.rate_state(name) for name in ("min_tx_rate", "max_tx_rate")] == ["requested", "requested"]


def test_what_the_test_has_found_is_published() -> None:
    """A scheduler that does not know the field ignores it."""
    pf = published(result_of("differs", "shown"))
    assert [pf.rate_state(name) for name in ("min_tx_rate", "max_tx_rate")] == ["differs", "shown"]
    assert published(result_of("not_asked", "shown")).rate_state("min_tx_rate") == "requested"


def test_a_test_of_another_kernel_or_driver_shows_nothing() -> None:
    """A kernel update is when the question is open again."""
    assert published(result_of("shown", "shown", kernel="6.12.57")).tested == {}
    assert published(result_of("shown", "shown"), driver="bnxt_en").tested == {}


def test_a_rate_that_the_driver_lacks_has_no_state() -> None:
    """hns3 has no min rates; its result is of its own driver."""
    pf = published(None, driver="hns3")
    assert [pf.rate_state(name) for name in ("min_tx_rate", "max_tx_rate")] == [None, "requested"]


@pytest.mark.parametrize("outcome", ["requested", 1])
def test_an_outcome_of_another_kind_is_refused(outcome: object) -> None:
    """The annotation is a contract."""
    document = json.loads(dump_inventory(inventory(result_of("shown", "shown")).inventory))
    document["pfs"][0]["tested"] = {"min_tx_rate": outcome}
    with pytest.raises(AnnotationError, match=r"tested\.min_tx_rate: .* is not one of shown, differs"):
        read_inventory(json.dumps(document))


def test_metrics_and_table_tell_requested_from_shown() -> None:
    """One sample for each state, so that an alert needs no join."""
    result = inventory(result_of("not_asked", "shown"))
    metrics = Metrics()
    metrics.scan(result)
    lines = metrics.text().decode().splitlines()
    for setting, state in (("min_tx_rate", "requested"), ("max_tx_rate", "shown")):
        assert f'mooring_inventory_rate_tested{{pf="p0",setting="{setting}",state="{state}"}} 1.0' in lines
        assert f'mooring_inventory_rate_tested{{pf="p0",setting="{setting}",state="differs"}} 0.0' in lines
    console = Console(file=StringIO(), width=200)
    print_table(result, "n1", console)
    assert "max_tx_rate (shown), min_tx_rate (requested)" in console.file.getvalue()  # type: ignore[attr-defined]


def test_results_are_read_where_the_advertiser_may(tmp_path: Path) -> None:
    """The extract once the server has made one, the state folder before; one that cannot be read hides no other."""
    roots = Roots(tmp_path / "sys", tmp_path / "state", tmp_path / "run")
    (roots.sysfs / "bus/pci/devices").mkdir(parents=True)
    keep_result(roots.state, roots.run, result_of("shown", "shown"))
    (roots.state / hardware_result.FOLDER / "0000:05:00.0.json").write_text("{")
    assert read_host(roots).hardware_results == {PCI: result_of("shown", "shown")}
    (roots.run / "extract/vfs").mkdir(parents=True)
    assert read_host(roots).hardware_results == {}
    (roots.run / hardware_result.EXTRACT_FOLDER).mkdir()
    keep_result(roots.state, roots.run, result_of("shown", "differs"))
    assert read_host(roots).hardware_results == {PCI: result_of("shown", "differs")}
    assert roots.run / hardware_result.EXTRACT_FOLDER in roots.folders
