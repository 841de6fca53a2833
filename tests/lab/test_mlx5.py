"""What mlx5_core of Linux 6.12 does on Ethernet in legacy mode, above the lab's modelled chip; functions are cited.

Functions are those of drivers/net/ethernet/mellanox/mlx5/core, unless another place is named.
"""

import json
import subprocess
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.lab

Lab = Callable[..., "subprocess.CompletedProcess[str]"]
PREPARE = """
set -e
functions=/sys/bus/pci/devices pf=0000:3b:00.0 vf0=0000:3b:01.0
for port in 0 1; do ip link set eth$port up; ip link set wire$port up; done
echo 3 >$functions/$pf/sriov_numvfs
netdev() { ls $functions/0000:3b:01.$1/net; }
address() { cat $functions/0000:3b:01.$1/net/*/address; }
guid() { cat $functions/0000:3b:01.$1/infiniband/*/node_guid; }
rebind() { echo 0000:3b:01.$1 >$functions/0000:3b:01.$1/driver/unbind; echo 0000:3b:01.$1 >/sys/bus/pci/drivers_probe; }
settings() { ip -j link show eth0 | jq -c ".[0].vfinfo_list[$1]$2"; }
shares() { tr '\\n' ' ' </sys/module/mlx5chip/parameters/shares; echo; }
"""


def run(lab: Lab, script: str) -> list[str]:
    done = lab(PREPARE + script, "-a", "mlx5chip.npf=2")
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.strip() for line in done.stdout.splitlines()]


def test_a_pf_in_legacy_mode_has_a_switch_id_and_an_rdma_device(lab: Lab) -> None:
    """mlx5e_devlink_port_register: both ports of a NIC have its system image GUID as switch id, VFs have none."""
    driver, *switches, none, mode, pf_device, vf_device, images, prefix = run(
        lab,
        """
        basename $(readlink $functions/$pf/driver)
        cat /sys/class/net/eth0/phys_switch_id /sys/class/net/eth1/phys_switch_id
        cat $functions/$vf0/net/*/phys_switch_id 2>/dev/null || echo none
        devlink -j dev eswitch show pci/$pf | jq -c .
        ls $functions/$pf/infiniband; ls $functions/$vf0/infiniband
        cat /sys/class/infiniband/*/sys_image_guid | sort | uniq -c
        cat $functions/$pf/net/eth0/phys_port_name
        """,
    )
    assert driver == "mlx5_core"
    assert switches[0] == switches[1] != ""
    assert none == "none"
    assert json.loads(mode)["dev"]["pci/0000:3b:00.0"]["mode"] == "legacy"
    assert [pf_device, vf_device] == ["mlx5_0", "mlx5_2"]
    assert images.split()[0] == "5"
    assert prefix == "p0"


def test_a_vf_reads_mac_and_node_guid_when_its_driver_is_bound(lab: Lab) -> None:
    """mlx5_esw_set_vport_mac_locked makes the node GUID; mlx5_query_node_guid and mlx5_query_mac_address at probe."""
    lines = run(
        lab,
        """
        guid 0; own=$(address 0)
        ip link set eth0 vf 0 mac 02:00:00:00:00:77; guid 0; [ $(address 0) = $own ] && echo unchanged
        rebind 0; guid 0; address 0
        ip link set eth0 vf 0 mac 00:00:00:00:00:00; guid 0; rebind 0; guid 0
        """,
    )
    none = "0000:0000:0000:0000"
    assert lines == [
        *(none, none, "unchanged", "0200:00ff:fe00:0077", "02:00:00:00:00:77"),
        *("0200:00ff:fe00:0077", "0000:00ff:fe00:0000"),
    ]


def test_a_vf_starts_untrusted_and_unchecked_and_may_change_its_mac(lab: Lab) -> None:
    """mlx5_eswitch_clear_vf_vports_info leaves zeros; mlx5e_set_vf_vlan refuses 802.1ad.

    mlx5e_set_mac refuses only what is no address of a host, also while the netdev is up.
    """
    lines = run(
        lab,
        """
        settings 0 ' | [.spoofchk, .trust, .link_state]'
        ip link set eth0 vf 0 mac 02:00:00:00:00:77
        ip link set $(netdev 0) up
        ip link set $(netdev 0) address 02:00:00:00:00:78; address 0; settings 0 .address
        ip link set $(netdev 0) address 01:00:00:00:00:78 2>&1 | grep -c 'Cannot assign'
        ip link set eth0 vf 0 vlan 7 proto 802.1ad 2>&1 | grep -c 'not supported'
        """,
    )
    assert lines == ['[false,false,"auto"]', "02:00:00:00:00:78", '"02:00:00:00:00:77"', "1", "1"]


def test_a_vf_that_does_not_exist_takes_settings_and_has_them_when_it_is_made(lab: Lab) -> None:
    """mlx5_eswitch_get_vport has every vport; mlx5_eswitch_clear_vf_vports_info forgets only VFs that there were.

    esw_legacy_enable sets the link state to AUTO.
    """
    lines = run(
        lab,
        """
        ip link set eth0 vf 4 mac 02:00:00:00:00:74 vlan 9 trust on state disable
        for vfs in 0 6 0 6; do echo $vfs >$functions/$pf/sriov_numvfs; [ $vfs = 0 ] ||
          settings 4 ' | [.address, .vlan_list[0].vlan, .trust, .link_state]'; done
        address 4; ip link set eth0 vf 999 trust on 2>&1 | grep -c 'Invalid argument'
        """,
    )
    gone = '["00:00:00:00:00:00",null,false,"auto"]'
    assert [lines[0], lines[1], lines[3]] == ['["02:00:00:00:00:74",9,true,"auto"]', gone, "1"]


def test_an_rdma_device_has_objects_of_its_driver_and_only_the_driver_removes_it(lab: Lab) -> None:
    """mlx5_ib_dev_res_srq_init and mlx5r_umr_resource_init of drivers/infiniband/hw/mlx5, no IBK_ALLOW_USER_UNREG."""
    lines = run(
        lab,
        """
        rdma -j res show | jq -c 'map(select(.ifname == "mlx5_2"))[0] | [.pd, .cq, .qp, .srq]'
        rdma link delete mlx5_2 2>&1 | grep -c 'Invalid argument'; ls $functions/$vf0/infiniband
        ip -j -d link show $(netdev 0) | jq -c '.[0] | [.min_mtu, .max_mtu]'
        """,
    )
    assert lines == ["[3,3,1,2]", "1", "mlx5_2", "[68,9978]"]


def test_a_closed_pf_takes_the_ports_of_its_vfs_down(lab: Lab) -> None:
    """mlx5e_close, mlx5e_modify_admin_state: VFs follow the uplink, unless their link state is `enable`."""
    lines = run(
        lab,
        """
        carrier() { cat $functions/0000:3b:01.$1/net/*/carrier; }
        port() { cut -d: -f1 $functions/$vf0/infiniband/*/ports/1/state; }
        for vf in 0 1 2; do ip link set $(netdev $vf) up; done
        ip link set eth0 vf 1 state enable; ip link set eth0 vf 2 state disable
        becomes() { for _ in $(seq 100); do [ $(port) != $1 ] || return 0; sleep 0.1; done; echo "never $1"; }
        becomes 4
        carrier 0; carrier 1; carrier 2
        ip link set eth0 down; becomes 1
        carrier 0; carrier 1; carrier 2
        """,
    )
    assert lines == ["1", "1", "0", "0", "1", "0"]


def test_frames_above_the_pfs_mtu_are_lost(lab: Lab) -> None:
    """mlx5e_set_mtu lets a VF have any MTU that its netdev takes, whatever the port of the PF has."""
    lines = run(
        lab,
        """
        for vf in 0 1; do
          ip netns add pod$vf; ip link set $(netdev $vf) netns pod$vf name net1 mtu 9000
          ip -n pod$vf address add 10.7.0.$vf/24 dev net1; ip -n pod$vf link set net1 up
        done
        reaches() { ip netns exec pod0 busybox ping -c 1 -W 2 -s $1 10.7.0.1 >/dev/null && echo yes || echo no; }
        until [ $(reaches 100) = yes ]; do :; done
        reaches 1400; reaches 4000; ip link set eth0 mtu 9000; reaches 4000
        """,
    )
    assert lines == ["yes", "no", "yes"]


def test_min_rates_are_weights_and_vfs_that_never_had_a_rate_lie_outside(lab: Lab) -> None:
    """esw_qos_calc_bw_share: 1 for VFs with 0, at most what the firmware takes; no rate is compared with the line's.

    A VF that gets its place later weighs 0 until a min changes (esw_qos_set_vport_min_rate returns early).
    """
    lines = run(
        lab,
        """
        shares; ip link set eth0 vf 0 min_tx_rate 20000; shares
        ip link set eth0 vf 1 max_tx_rate 500; shares
        ip link set eth0 vf 0 min_tx_rate 10000; shares; ip link set eth0 vf 0 min_tx_rate 20000
        ip link set eth0 vf 1 max_tx_rate 90000 min_tx_rate 10000; shares; settings 1 .rate
        """,
    )
    assert lines == [
        "0 outside 1 outside 2 outside",
        "0 100 1 outside 2 outside",
        "0 100 1 0 2 outside",
        "0 100 1 1 2 outside",
        "0 100 1 50 2 outside",
        '{"max_tx":90000,"min_tx":10000}',
    ]


def test_a_reload_of_the_pf_forgets_rates_and_link_states(lab: Lab) -> None:
    """mlx5_sriov_detach, esw_vport_setup, esw_legacy_enable: the VFs stay, with MAC, VLAN, trust and spoof check."""
    lines = run(
        lab,
        """
        ip link set eth0 vf 0 mac 02:00:00:00:00:77 vlan 7
        ip link set eth0 vf 0 max_tx_rate 500 min_tx_rate 100; ip link set eth0 vf 0 state enable trust on spoofchk on
        devlink dev reload pci/$pf >/dev/null 2>&1
        ls $functions/$pf/net; cat $functions/$pf/sriov_numvfs; ls $functions/$pf/infiniband; shares
        ip -j link show eth0 | jq -c '.[0].flags | contains(["UP"])'
        settings 0 ' | [.address, .vlan_list[0].vlan, .trust, .spoofchk]'
        settings 0 ' | [.rate.min_tx, .rate.max_tx, .link_state]'
        """,
    )
    assert lines == [
        *("eth0", "3", "mlx5_0", "0 outside 1 outside 2 outside", "false"),
        *('["02:00:00:00:00:77",7,true,true]', '[0,0,"auto"]'),
    ]


def test_a_queue_pair_that_cannot_be_queried_ends_the_dump(lab: Lab) -> None:
    """mlx5_ib_query_qp of drivers/infiniband/hw/mlx5/qp.c: ENOSYS for queue pairs with a receive hash."""
    lines = run(
        lab,
        """
        dump() { rdma res show qp >/dev/null 2>&1 && echo complete || echo failed; }
        dump; echo refused 0 0x50b >/sys/module/mlx5chip/parameters/fault; dump
        rdma -j res show | jq -c 'map(.qp) | length'
        """,
    )
    assert lines == ["complete", "failed", "5"]
