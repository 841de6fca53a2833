"""InfiniBand on the lab kernel: mlx5_core, mlx5_ib and IPoIB above the modelled chip.

What a VF is told, when a port becomes active, how a netdev is removed and made again with its RDMA device.
"""

import json
import sys

import pytest

from tests.lab.calls.infiniband_calls import FIRST, FIRST_VF, SECOND_VF, Lab, boot, run
from tests.support.offers import IN_THE_LAB

pytestmark = pytest.mark.lab


SECOND = {"pf": "ib0", "vf": 1, "pci": SECOND_VF, "link": "infiniband", "network": "default", "name": "rdma7"}


def test_the_driver_answers_for_vfs(lab: Lab) -> None:
    """Policy Down, zeros, the PF's own address; GUIDs are read at probe, ports become active after the policy is set.

    Nothing but link state and GUIDs can be set. What was set outlives the VFs (sriov_restore_guids in mlx5_core).
    """
    lines = boot(
        lab,
        """
        make_vfs 2; ip -d -j link show ib0 >/tmp/found
        jq -c '.[0] as $pf | $pf.vfinfo_list | map(.address == $pf.address)' /tmp/found
        jq -c '.[0].vfinfo_list[0] | [.vlan_list, .rate, .spoofchk, .trust, .link_state]' /tmp/found
        for what in "vlan 7" "max_tx_rate 100" "spoofchk on" "trust on"; do
          ip link set ib0 vf 0 $what 2>&1 | sed 's/.*: //'
        done
        port 0; node_guid 0; cat $(vf 0)/class; ls $(vf 0)/infiniband_mad | wc -l
        ip link set ib0 vf 0 node_guid 02:00:00:00:00:00:00:01; ip link set ib0 vf 0 port_guid 02:00:00:00:00:00:00:01
        ip link set ib0 vf 0 state auto; node_guid 0; port 0; until_true is_active 0; port 1
        echo 0000:3b:01.0 >$(vf 0)/driver/unbind; echo 0000:3b:01.0 >/sys/bus/pci/drivers/mlx5_core/bind
        node_guid 0; cut -d: -f5- $(vf 0)/infiniband/*/ports/1/gids/0
        make_vfs 0; make_vfs 1; node_guid 0; told 0
        devlink dev eswitch show pci/0000:3b:00.0 2>&1 | sed 's/.*: //'
        """,
    )
    unsupported = "Operation not supported"
    assert lines == [
        *("[true,true]", '[[{}],{"max_tx":0,"min_tx":0},false,false,"disable"]', *[unsupported] * 4),
        *("DOWN", "0000:0000:0000:0000", "0x020700", "2"),
        *("0000:0000:0000:0000", "INIT", "DOWN"),
        *("0200:0000:0000:0001", "0200:0000:0000:0001"),
        *("0200:0000:0000:0001", '["auto","02:00:00:00:00:00:00:01"]', unsupported),
    ]


GIVE_GUID = "ip link set ib0 vf 0 node_guid {0}; ip link set ib0 vf 0 port_guid {0}"
# What the PF says of a VF that has no GUID.
AUTO = '["auto","00:00:00:00:00:00:00:00"]'


OFFER = """
cat >/tmp/offer.yaml <<E
v: 1
pfs:
- match: {link: infiniband}
  init: {vfs: 3, trust: true, spoofchk: true}
E
"""


def test_init_gives_each_vf_its_guid_and_a_policy_and_show_offers_them(lab: Lab) -> None:
    """What IPoIB has no operation for is left out; the ports become active; a second init changes nothing."""
    program = f"{sys.executable} -m advertiser"
    flags = "--offer /tmp/offer.yaml --node-name lab"
    *lines, shown = boot(
        lab,
        f"""
        {OFFER} {program} init {flags} 2>/tmp/log || cat /tmp/log
        for vf in 0 1 2; do told $vf; until_true is_active $vf; node_guid $vf; done
        jq -r 'select(.settings).settings' /tmp/log; prepared
        {program} init {flags} 2>/tmp/log || cat /tmp/log
        same
        {program} show {flags} --output json | jq -c '.inventory.pfs'
        """,
    )
    vfs = [
        line
        for index in range(3)
        for line in (f'["auto","02:{index:02x}:ef:03:00:12:34:50"]', f"02{index:02x}:ef03:0012:3450")
    ]
    assert lines == [*vfs, "trust, spoofchk", "same"]
    (pf,) = json.loads(shown)
    assert (pf["name"], pf["link"], pf["vfs"], pf["up"], pf.get("out")) == ("ib0", "infiniband", "0-2", True, None)
    assert pf["can"] == ["guid", "link_state"]


def test_vfs_without_netdevs_are_offered_by_their_rdma_devices(lab: Lab) -> None:
    """As where IPoIB is on the PF only; init sets them all the same."""
    program, flags = f"{sys.executable} -m advertiser", "--offer /tmp/offer.yaml --node-name lab"
    *netdevs, shown = boot(
        lab,
        f"""
        {OFFER} echo 2 >$parameters/no_ipoib; {program} init {flags} 2>/tmp/log || cat /tmp/log
        for vf in 0 1 2; do ls $(vf $vf) | grep -cx net || true; done
        {program} show {flags} --output json | jq -c '.inventory.pfs'
        """,
    )
    (pf,) = json.loads(shown)
    assert netdevs == ["0", "0", "0"]
    assert (pf["name"], pf["vfs"], pf.get("out")) == ("ib0", "0-2", None)


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_an_infiniband_vfs_life(lab: Lab, mode: str) -> None:
    """Its port becomes active in the pod, its netdev has the MTU, its RDMA device is where the mode puts it.

    In exclusive mode IPoIB's netdev is removed with the device and made again, under another name, on the host.
    """
    lines = run(
        lab,
        """
        add; told 0; told 1; devices host; devices pod inside
        inside ip -j link show net1 | jq -c '.[0] | [.mtu, (.flags | contains(["UP"]))]'
        inside ip -j addr show rdma7 | jq -r '.[0].addr_info[0].local'
        until_true is_active 0 inside; until_true is_active 1 inside
        until_true inside sh -c 'ip -j link show net1 | grep -q LOWER_UP'
        del; same; CNI_NETNS= del; same
        """,
        FIRST,
        # As the requests of earlier systems have it.
        SECOND | {"min_tx_rate": 0, "max_tx_rate": 0},
        mode=mode,
        mtu=1500,
    )
    everywhere = '["mlx5_0","mlx5_1","mlx5_2"]'
    host, pod = ('["mlx5_0"]', '["mlx5_1","mlx5_2"]') if mode == "exclusive" else (everywhere, everywhere)
    assert lines == [
        *("add 0", AUTO, AUTO, f"host {host}", f"pod {pod}", "[1500,true]", "10.9.0.3"),
        *("del 0", "same", "del 0", "same"),
    ]


def test_the_devices_of_a_namespace_that_died_come_back(lab: Lab) -> None:
    """The kernel returns the RDMA device and makes the netdev again on the host; DEL restores names and policy."""
    lines = run(lab, "add; ip netns delete pod; del; same", FIRST, SECOND, mode="exclusive")
    assert lines == ["add 0", "del 0", "same"]


def test_the_reconciler_returns_what_a_dead_sandbox_left(lab: Lab) -> None:
    """Without a DEL: names, policy, ledger and addresses are as before."""
    script = f"""
        add; {sys.executable} -m cni serve --node-name n1 --reconcile-s 1 2>/tmp/log & server=$!
        ip netns delete pod; until_true is_same; same; kill $server; wait $server; echo ended $?
        """
    assert run(lab, script, FIRST, SECOND, mode="exclusive") == ["add 0", "same", "ended 0"]


def test_a_vf_without_a_netdev_is_its_rdma_device(lab: Lab) -> None:
    """Without ib_ipoib on the VF, the device alone goes into the pod and comes back."""
    script = """
        make_vfs 0; echo 2 >$parameters/no_ipoib; make_vfs 2; prepared
        add; devices host; devices pod inside; told 0; inside ip -j link show | jq -c 'map(.ifname)'; del; same
        """
    lines = run(lab, script, FIRST, mode="exclusive")
    assert lines == ["add 0", 'host ["mlx5_0","mlx5_2"]', 'pod ["mlx5_1"]', AUTO, '["lo"]', "del 0", "same"]


def test_a_pods_guid_takes_effect_by_a_rebind_and_so_does_the_old_one(lab: Lab) -> None:
    """The VF itself has the pod's GUID, as node and port GUID, and its own again afterwards."""
    own, other = "02:00:00:00:00:00:00:01", "02:00:00:00:00:00:00:99"
    script = f"""
        {GIVE_GUID.format(own)}
        echo {FIRST_VF} >$(vf 0)/driver/unbind; echo {FIRST_VF} >/sys/bus/pci/drivers/mlx5_core/bind
        ip link set $(ls $(vf 0)/net) promisc on txqueuelen 77; prepared
        add; inside rdma -j dev show | jq -r '.[0].node_guid'; inside ip -j link show net1 | jq -r '.[0].address[36:]'
        del; node_guid 0; cat $(vf 0)/net/*/tx_queue_len; same
        """
    lines = run(lab, script, FIRST | {"guid": other}, mode="exclusive")
    assert lines == ["add 0", "0200:0000:0000:0099", other, "del 0", "0200:0000:0000:0001", "77", "same"]


def test_a_detach_killed_before_its_rebind_rebinds_all_the_same(lab: Lab) -> None:
    """The PF has the old GUID again, the driver was not bound since: the VF still has the pod's."""
    own = "02:00:00:00:00:00:00:01"
    script = f"""
        {GIVE_GUID.format(own)}
        echo {FIRST_VF} >$(vf 0)/driver/unbind; echo {FIRST_VF} >/sys/bus/pci/drivers/mlx5_core/bind; prepared
        add; {GIVE_GUID.format(own)}; node_guid 0; del; node_guid 0; same
        """
    lines = run(lab, script, FIRST | {"guid": "02:00:00:00:00:00:00:99"})
    assert lines == ["add 0", "0200:0000:0000:0099", "del 0", "0200:0000:0000:0001", "same"]


def test_a_guid_that_the_vf_did_not_have_is_taken_away_again(lab: Lab) -> None:
    """Made without `init` a VF has none; it must not keep the pod's, which the pod has on another VF next time."""
    script = """
        add; node_guid 0; del; node_guid 0; told 0; same
        add; ip netns delete pod; del; same
        """
    lines = run(lab, script, FIRST | {"guid": "02:00:00:00:00:00:00:99"})
    unset = ("0000:0000:0000:0000", '["disable","00:00:00:00:00:00:00:00"]')
    assert lines == ["add 0", "0200:0000:0000:0099", "del 0", *unset, "same", "add 0", "del 0", "same"]


def test_a_setting_that_ipoib_has_no_operation_for_is_refused_and_everything_undone(lab: Lab) -> None:
    """Placement keeps such a pod away; one that comes all the same is told PF, VF and setting."""
    lines = run(lab, "add; same", FIRST, SECOND | {"vlan": 7}, mode="exclusive")
    refusal = "add 1 pf 'ib0' refuses vlan 7 for vf 1: EOPNOTSUPP (Operation not supported)"
    assert lines == [refusal, "same"]


@pytest.mark.parametrize("what", ["context", "qp"])
def test_a_process_that_keeps_verbs_objects_loses_them(lab: Lab, what: str) -> None:
    """IPoIB's and the MAD layer's own objects are no users; a process's are, and DEL takes them by a rebind."""
    script = f"""
        add; {sys.executable} $verbs {FIRST_VF} {what} >/tmp/ready & server=$!; until_true grep -q ready /tmp/ready
        echo refused 0 0x50b >$parameters/fault
        del; grep -cE 'driver is rebound|rebinding its driver' /tmp/log
        test -d /proc/$server && echo alive; phase; same
        """
    lines = run(lab, script, FIRST)
    assert lines == ["add 0", "del 0", "1", "alive", "none", "same"]


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_a_port_that_is_not_active_after_add_is_reported(lab: Lab, mode: str) -> None:
    """The server sees it in the host's sysfs, or in the pod's namespace."""
    script = f"""
        add; ip link set ib0 vf 0 state disable
        {sys.executable} -m cni serve --node-name n1 --reconcile-s 1 2>/tmp/log & server=$!
        until_true grep -qs inactive_ports /run/mooring/extract/vf-faults.json
        jq -c '.inactive_ports[] | [.pod, .pf, .vf, .state]' /run/mooring/extract/vf-faults.json
        kill $server; wait $server; ip link set ib0 vf 0 state auto; del; same
        """
    lines = run(lab, script, FIRST, mode=mode)
    assert lines == ["add 0", '["ns/pod","ib0",0,"DOWN"]', "del 0", "same"]


def test_add_gives_a_vf_its_guid_once(lab: Lab) -> None:
    """It is what `init` would give; the port gets it as its GID. A second pod finds it, and no driver is rebound."""
    script = f"""
        {IN_THE_LAB}
        # What ADD gives stays.
        rm /tmp/firmware
        node_guid 0; add; node_guid 0; told 0; cut -d: -f5- $(vf 0)/infiniband/*/ports/1/gids/0
        del; node_guid 0; number=$(cat $(vf 0)/net/*/ifindex); prepared
        add; del; [ $number = $(cat $(vf 0)/net/*/ifindex) ] && echo not bound again; same
        """
    own = "0200:ef03:0012:3450"
    told = '["auto","02:00:ef:03:00:12:34:50"]'
    first = ["0000:0000:0000:0000", "add 0", own, told, own, "del 0", own]
    assert run(lab, script, FIRST) == [*first, "add 0", "del 0", "not bound again", "same"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_partitions_interface_that_a_pod_made_is_not_the_vf_and_goes_with_it(lab: Lab, *, is_killed: bool) -> None:
    """It has a lower index; a namespace that dies gives it to the host (netns_refund of ipoib_link_ops)."""
    ended = "ip netns delete pod; del" if is_killed else "del"
    script = f"""
        add; inside ip link add link net1 name a index 3 type ipoib pkey 0x8001
        inside ip -j link show | jq -c 'map(.ifname) | sort'
        {ended}; ip -j link show | jq -c 'map(.ifname) | index("a")'; same
        """
    assert run(lab, script, FIRST) == ["add 0", '["a","lo","net1"]', "del 0", "null", "same"]
