"""VFs of mlx5 whose drivers are bound again at once: each RDMA device keeps its name."""

import json
import sys

import pytest

from tests.lab.calls.rdma_calls import Lab, run
from tests.lab.nics import ALL_MLX5, Nic, with_nic

pytestmark = pytest.mark.lab

# Two calls of the plugin at once, each at the point where its VF's driver has been bound again.
SWAPPED = """
import json, sys, threading
from pathlib import Path
from types import SimpleNamespace
from cni.kernel.sysfs import Sysfs
from cni.vf.ledger import Ledger
from cni.vf.node import name_device
node = SimpleNamespace(sysfs=Sysfs(Path("/sys")), ledger=Ledger(Path("/var/lib/mooring/vfs")))
pci = ["0000:3b:01.0", "0000:3b:01.1"]
names = lambda: [node.sysfs.rdma(each) for each in pci]
before = names()
for each in pci:
    Path("/sys/bus/pci/devices", each, "driver/unbind").write_text(each)
for each in reversed(pci):
    Path("/sys/bus/pci/drivers_probe").write_text(each)
swapped = names()
entries = [SimpleNamespace(pci=each, rdma=name) for each, name in zip(pci, before)]
calls = [threading.Thread(target=name_device, args=(node, entry)) for entry in entries]
for call in calls:
    call.start()
for call in calls:
    call.join()
print(json.dumps([before, swapped, names()]))
"""


@pytest.mark.parametrize("nic", ALL_MLX5)
def test_vfs_that_are_rebound_at_once_keep_the_names_of_their_rdma_devices(lab: Lab, nic: Nic) -> None:
    """The kernel gives the one that is bound first the lowest free name, which was the other's (alloc_name)."""
    script = f"{sys.executable} - <<'END'\n{SWAPPED}END\n"
    before, swapped, after = json.loads(run(with_nic(lab, nic), script, nic.vf(0))[-1])
    assert swapped == before[::-1]
    assert after == before
