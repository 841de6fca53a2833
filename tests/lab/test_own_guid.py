"""A pod's own GUID on the lab's kernel, on a PF that is told to take GUIDs: when the VF's driver is bound again."""

import json
import sys

import pytest

from tests.lab.calls.rdma_calls import FIRST, Lab, run
from tests.lab.nics import ALL_MLX5, Nic, with_nic

pytestmark = pytest.mark.lab

GUID_CALL = f"{sys.executable} -m tests.lab.inside.guid_call /tmp/guids"


def test_a_pods_own_guid_takes_effect_by_a_rebind_and_so_does_the_old_one(lab: Lab) -> None:
    """mlx5 reads a VF's GUID when its driver is bound: it is bound again on ADD, and again on DEL."""
    own, other = "02:00:00:00:00:00:00:01", "02:00:00:00:00:00:00:99"
    script = f"""
        rdma link del rx0; echo '{{"0":"{own}"}}' >/tmp/guids; ip link set eth2 promisc on txqueuelen 77; prepared
        index() {{ $1 ip -j link show $2 | jq '.[0].ifindex'; }}
        guid() {{
          CNI_COMMAND=$1 CNI_CONTAINERID=pod CNI_NETNS=/run/netns/pod CNI_ARGS="IgnoreUnknown=1;K8S_POD_UID=pod" \
          {GUID_CALL} </tmp/conf.json >/tmp/answer 2>/tmp/log && echo $1 0 || cat /tmp/answer
          jq -r '.["0"]' /tmp/guids
        }}
        before=$(index "" eth2)
        guid ADD; inside=$(index "inside" net1); [ $inside -gt $before ] && echo rebound
        guid DEL; [ $(index "" eth2) -gt $inside ] && echo rebound; same
        ip -j link show eth2 | jq -c '.[0].txqlen, (.[0].flags | contains(["PROMISC"]))'
        """
    lines = run(lab, script, FIRST | {"link": "infiniband", "guid": other})
    assert lines == ["ADD 0", other, "rebound", "DEL 0", own, "rebound", "same", "77", "true"]


def test_a_detach_killed_before_its_rebind_rebinds_all_the_same(lab: Lab) -> None:
    """The PF has the old GUID again, the driver was not bound since: the VF still has the pod's."""
    script = f"""
        rdma link del rx0; echo '{{"0":"02:00:00:00:00:00:00:01"}}' >/tmp/guids; prepared
        guid() {{
          CNI_COMMAND=$1 CNI_CONTAINERID=pod CNI_NETNS=/run/netns/pod CNI_ARGS="IgnoreUnknown=1;K8S_POD_UID=pod" \
          {GUID_CALL} </tmp/conf.json >/tmp/answer 2>/tmp/log && echo $1 0 || cat /tmp/answer
        }}
        guid ADD; inside=$(inside ip -j link show net1 | jq '.[0].ifindex')
        echo '{{"0":"02:00:00:00:00:00:00:01"}}' >/tmp/guids
        guid DEL; [ $(ip -j link show eth2 | jq '.[0].ifindex') -gt $inside ] && echo rebound; same
        """
    lines = run(lab, script, FIRST | {"link": "infiniband", "guid": "02:00:00:00:00:00:00:99"})
    assert lines == ["ADD 0", "DEL 0", "rebound", "same"]


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
