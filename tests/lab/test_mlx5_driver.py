"""The CNI plugin and `init` on the vendor's driver: mlx5_core and mlx5_ib of Linux 6.12, above the lab's modelled chip.

What the firmware has is part of what must be as before: each VF's vport and its place in rate scheduling, the entries
of ACLs and other flow tables (report.c of devcluster/lab/kernel/mlx5chip, inside/firmware.sh).
"""

import sys

import pytest

from tests.lab.calls.rdma_calls import Lab, record, run, second
from tests.lab.nics import MLX5 as NIC
from tests.lab.nics import with_nic

pytestmark = pytest.mark.lab

CHIP = """
set -e
chip=/sys/module/mlx5chip/parameters functions=/sys/bus/pci/devices pf=0000:3b:00.0
shares() { tr '\\n' ' ' <$chip/shares; echo; }
"""


def test_pf_and_vfs_have_the_vendors_driver(lab: Lab) -> None:
    """In legacy mode, each with its netdev and RDMA device; a frame goes from VF to VF and to the wire."""
    lines = with_nic(lab, NIC)(
        CHIP
        + """
        ip link set eth0 up; ip link set wire0 up; echo 2 >$functions/$pf/sriov_numvfs
        for function in $pf 0000:3b:01.0 0000:3b:01.1; do
          echo $(basename $(readlink $functions/$function/driver)) $(ls $functions/$function/infiniband)
        done
        devlink -j dev eswitch show pci/$pf | jq -r '.dev[].mode'
        give() {
          ip netns add $1; ip link set $2 netns $1; ip -n $1 address add 10.7.0.$3/24 dev $2; ip -n $1 link set $2 up
        }
        give pod0 $(ls $functions/0000:3b:01.0/net) 1; give pod1 $(ls $functions/0000:3b:01.1/net) 2
        give wire wire0 3
        ping() { ip netns exec pod0 busybox ping -c 1 -W 1 $1 >/dev/null; }
        reaches() { for _ in $(seq 40); do ping $1 && return; done; echo lost; }
        reaches 10.7.0.2; reaches 10.7.0.3
        """,
    ).stdout.splitlines()
    assert lines == ["mlx5_core mlx5_0", "mlx5_core mlx5_2", "mlx5_core mlx5_3", "legacy"]


def test_a_vf_that_gets_a_maximum_after_anothers_minimum_keeps_weight_0(lab: Lab) -> None:
    """esw_qos_set_vport_min_rate returns early where the minimum is as before: no weight is written.

    VFs to which 0/0 was written before, as `init` and ADD do, get weight 1 with the first minimum of another.
    """
    lines = with_nic(lab, NIC)(
        CHIP
        + """
        echo 3 >$functions/$pf/sriov_numvfs; shares
        ip link set eth0 vf 2 min_tx_rate 0 max_tx_rate 0; shares
        ip link set eth0 vf 0 min_tx_rate 20000; shares
        ip link set eth0 vf 1 max_tx_rate 500; shares
        """,
    ).stdout.splitlines()
    assert [line.strip() for line in lines] == [
        "0 outside 1 outside 2 outside",
        "0 outside 1 outside 2 0",
        "0 100 1 outside 2 1",
        "0 100 1 0 2 1",
    ]


def test_init_gives_each_vf_a_weight_before_the_first_minimum(lab: Lab) -> None:
    """Promise 8: no VF that `init` made has weight 0 once another has a minimum."""
    init = f"{sys.executable} -m advertiser init --offer /tmp/offer.yaml --node-name lab"
    lines = with_nic(lab, NIC)(
        CHIP
        + f"""
        for pf in 0 1; do ip link set eth$pf up; done
        echo '{{"v": 1, "pfs": [{{"match": {{"pci": "0000:3b:00.0"}}, "init": {{"vfs": 4}}}}]}}' >/tmp/offer.yaml
        {init} 2>/tmp/log || cat /tmp/log; shares
        ip link set eth0 vf 0 min_tx_rate 100; shares
        """,
    ).stdout.splitlines()
    assert [line.strip() for line in lines] == ["0 0 1 0 2 0 3 0", "0 100 1 1 2 1 3 1"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_add_check_and_del_leave_the_firmware_as_it_was(lab: Lab, mode: str) -> None:
    """Every setting is in the firmware while the pod has the VF, none of it afterwards. ADD enrols all VFs first."""
    lines = run(
        with_nic(lab, NIC),
        """
        add; head -1 $chip/vports | cut -d' ' -f 3,6-; cut -d' ' -f 1,16-19 $chip/vports; devices pod inside
        jq -c --slurpfile result /tmp/answer '.prevResult = $result[0]' /tmp/conf.json >/tmp/check.json
        conf=/tmp/check.json call CHECK pod; echo check $status
        del; same
        """,
        NIC.vf(0, **NIC.wishes),
        second(NIC),
        mode=mode,
    )
    firmware = "02:00:00:00:00:99 vlan 7 qos 3 strip 1 insert 1 state 1 weight 100 max 2000"
    assert lines[:2] == ["add 0 null", lines[1]]
    assert lines[1].startswith(firmware)
    assert lines[2:] == [
        *(f"{vf} weight {weight} max {most}" for vf, weight, most in ((0, 100, 2000), (1, 1, 0), (2, 1, 0), (3, 1, 0))),
        *('pod ["rx0","rx1"]', "check 0", "del 0", "same"),
    ]


def test_an_entry_that_stays_in_a_flow_table_is_a_difference(lab: Lab) -> None:
    """One that nothing but the firmware's tables show, until it is gone."""
    lines = run(
        with_nic(lab, NIC),
        """
        add; del; same; netdev=$(ls $functions/0000:3b:01.1/net)
        ethtool -N $netdev flow-type ether dst 02:00:00:00:00:55 action 0 loc 0; same
        ethtool -N $netdev delete 0; same
        """,
        NIC.vf(0, **NIC.wishes),
        second(NIC),
    )
    assert lines[:4] == ["add 0 null", "del 0", "same", "different"]
    assert [line.startswith("> 0 entry 0 ") for line in lines if "dmac 02:00:00:00:00:55" in line] == [True]
    assert lines[-1] == "same"


@pytest.mark.slow
def test_rdma_cm_connects_two_pods_and_reads_and_writes_pass(lab: Lab) -> None:
    """`rping` of rdma-core with the vendor's library: each round is a send, an RDMA read and an RDMA write.

    It ends when the flushed receive buffer of its queue pair has been completed, each of the twelve times.
    """
    lines = run(
        with_nic(lab, NIC),
        f"""
        {record("other", second(NIC))} add; add other
        address=$(ip -n other -j addr show rdma7 | jq -r '[.[0].addr_info[] | select(.family == "inet")][0].local')
        ip -n pod route add $address dev net1; ip -n other route add 10.9.0.0/24 dev rdma7
        listens() {{ ip netns exec other rdma resource show cm_id | grep -q 'state LISTEN'; }}
        for _ in $(seq 12); do
          ip netns exec other rping -s -a $address -C 3 -P >/tmp/server 2>&1 & server=$!
          until_true listens
          inside timeout 20 rping -c -a $address -C 3 -v >/tmp/client 2>&1 && grep -c 'ping data' /tmp/client ||
            cat /tmp/client /tmp/server
          kill $server; wait $server 2>/dev/null || true
        done
        del other; del; same
        """,
        NIC.vf(0),
        mode="exclusive",
    )
    assert lines == ["add 0 null", "add 0 null", *["3"] * 12, "del 0", "del 0", "same"]
