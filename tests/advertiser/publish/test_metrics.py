"""What the advertiser counts of a scan."""

from advertiser.inventory.build_inventory import InventoryResult
from advertiser.publish.metrics import Metrics
from mooring.annotations.inventory import Inventory
from mooring.gpu.inventory import Gpu, GpuInventory, GpuOut

NOTHING = InventoryResult(Inventory("b", ()), ())


def test_gpus_are_counted_only_where_they_are_published() -> None:
    """On other nodes a number would say that there are none."""
    metrics = Metrics()
    metrics.scan(NOTHING)
    assert b"mooring_inventory_gpus{" not in metrics.text()
    gpus = GpuInventory((Gpu("0000:1b:00.0", "GPU-1", "nvidia"),), (GpuOut("0000:43:00.0", "MIG is on"),))
    metrics.scan(NOTHING, gpus)
    assert b'mooring_inventory_gpus{state="offered"} 1.0' in metrics.text()
    assert b'mooring_inventory_gpus{state="out"} 1.0' in metrics.text()
