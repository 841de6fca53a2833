"""A pod's own GUID on the lab's kernel, on a PF that is told to take GUIDs: when the VF's driver is bound again."""

import sys

import pytest

from tests.lab.rdma_calls import FIRST, Lab, run

pytestmark = pytest.mark.lab

GUID_CALL = f"{sys.executable} -m tests.lab.guid_call /tmp/guids"


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
