"""InfiniBand on the lab kernel: its own IPoIB over verbs devices that answer as mlx5's, without traffic.

What a VF is told, when a port becomes active, how a netdev is removed and made again with its RDMA device.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.offers import IN_THE_LAB

pytestmark = pytest.mark.lab

Lab = Callable[..., "subprocess.CompletedProcess[str]"]
PF, FIRST_VF, SECOND_VF = "0000:3b:00.0", "0000:3b:01.0", "0000:3b:01.1"
FIRST = {"pf": "ib0", "vf": 0, "pci": FIRST_VF, "link": "infiniband", "network": "default"}
SECOND = {"pf": "ib0", "vf": 1, "pci": SECOND_VF, "link": "infiniband", "network": "default", "name": "rdma7"}
# Function 0 is InfiniBand, function 1 the Ethernet NIC of the other tests.
KERNEL = "simib.pfs=1"
CONF = {
    "cniVersion": "1.0.0",
    "name": "net",
    "type": "mooring-cni",
    "node": "n1",
    "prevResult": {"cniVersion": "1.0.0", "interfaces": [], "ips": []},
    "policyRouting": False,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]], "dataDir": "/run/ipam"},
}
# `state` is what must be as before, `links` what a user reads of the VFs. IPoIB's address starts with the number of a
# queue pair (ipoib_dev_init_default), another one whenever the netdev is made again.
PREPARE = f"""
set -e
functions=/sys/bus/pci/devices parameters=/sys/module/simib/parameters
verbs={Path(__file__).with_name("verbs_process.py")}
export CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni
{IN_THE_LAB}
mkdir -p /var/lib/mooring/pods
until_true() {{ for turn in $(seq 1800); do "$@" && return; sleep 0.05; done; echo "never: $*"; exit 1; }}
vf() {{ echo $functions/0000:3b:01.$1; }}
verbs_of() {{ cat $(vf $1)/infiniband_verbs/*/ibdev; }}
# port VF [inside]: the state of its port, where its RDMA device is
port() {{ $2 sh -c "cut -d' ' -f2 $(vf $1)/infiniband/*/ports/1/state"; }}
is_active() {{ [ "$(port $1 $2)" = ACTIVE ]; }}
node_guid() {{ cat $(vf $1)/infiniband/*/node_guid; }}
told() {{ ip -d -j link show ib0 | jq -c ".[0].vfinfo_list[$1] | [.link_state, .[\\"node guid\\"]]"; }}
state() {{
  ip -d -j link show | jq -c 'map({{ifname, mtu, flags, altnames, operstate, parentdev, address: .address[12:],
    vfs: (.vfinfo_list // [] | map(del(.address)))}}) | sort_by(.ifname)'
  rdma -j dev show | jq -c 'map([.ifname, .node_guid]) | sort'
  ls /var/lib/mooring/vfs /run/ipam/net 2>/dev/null | grep -E '^[0-9]' || true
}}
prepared() {{ state >/tmp/before; }}
is_same() {{ state >/tmp/now; cmp -s /tmp/before /tmp/now; }}
same() {{
  is_same && echo same || {{ echo different; cat /tmp/before /tmp/now /tmp/log; }}
}}
call() {{
  CNI_COMMAND=$1 CNI_CONTAINERID=pod CNI_NETNS=/run/netns/pod \\
  CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;K8S_POD_UID=pod" \\
  {sys.executable} -m cni </tmp/conf.json >/tmp/answer 2>/tmp/log && status=0 || status=$?
}}
# The shell drops the spaces of what is empty: "add 0", or "add 1" with the reason.
add() {{ call ADD; echo add $status $(jq -r '.msg // "", .details // ""' /tmp/answer); }}
del() {{ call DEL; echo del $status $(jq -r '.msg // "", .details // ""' /tmp/answer); }}
inside() {{ ip netns exec pod "$@"; }}
devices() {{ echo $1 $($2 rdma -j dev show | jq -c 'map(.ifname) | sort'); }}
phase() {{ echo $(jq -r .phase /var/lib/mooring/vfs/{FIRST_VF}.json 2>/dev/null || echo none); }}
make_vfs() {{ echo $1 >$functions/{PF}/sriov_numvfs; }}
"""


def run(lab: Lab, script: str, *vfs: dict[str, Any], mode: str = "shared", mtu: int | None = None) -> list[str]:
    """Boot, make two VFs and a pod to which ``vfs`` are assigned, and run the script; return its lines."""
    record = {"v": 1, "pod": "ns/pod", "assignment": {"v": 1, "uid": "pod", "node": "n1", "vfs": vfs}}
    conf = CONF | ({"networks": {"default": {"mtu": mtu, "ipam": CONF["ipam"]}}} if mtu else {})
    pod = f"echo '{json.dumps(record)}' >/var/lib/mooring/pods/pod.json; ip netns add pod\n"
    before = f"rdma system set netns {mode}\necho '{json.dumps(conf)}' >/tmp/conf.json\nmake_vfs 2\n{pod}prepared\n"
    return boot(lab, before + script)


def boot(lab: Lab, script: str, kernel: str = KERNEL) -> list[str]:
    done = lab(PREPARE + script, "-a", kernel)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_lab_answers_for_vfs_as_mlx5_does_on_infiniband(lab: Lab) -> None:
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
        ip link set ib0 vf 0 node_guid {own}; ip link set ib0 vf 0 port_guid {own}
        echo {FIRST_VF} >$(vf 0)/driver/unbind; echo {FIRST_VF} >/sys/bus/pci/drivers/mlx5_core/bind; prepared
        add; inside rdma -j dev show | jq -r '.[0].node_guid'; inside ip -j link show net1 | jq -r '.[0].address[36:]'
        del; node_guid 0; same
        """
    lines = run(lab, script, FIRST | {"guid": other}, mode="exclusive")
    assert lines == ["add 0", "0200:0000:0000:0099", other, "del 0", "0200:0000:0000:0001", "same"]


@pytest.mark.parametrize("what", ["context", "qp"])
def test_a_process_that_keeps_verbs_objects_loses_them(lab: Lab, what: str) -> None:
    """IPoIB's and the MAD layer's own objects are no users; a process's are, and DEL takes them by a rebind."""
    script = f"""
        add; {sys.executable} $verbs {FIRST_VF} {what} >/tmp/ready & server=$!; until_true grep -q ready /tmp/ready
        echo 5 >$parameters/query_qp_errno
        del; grep -c 'driver is rebound' /tmp/log; test -d /proc/$server && echo alive; phase; same
        """
    lines = run(lab, script, FIRST)
    assert lines == ["add 0", "del 0", "1", "alive", "none", "same"]
