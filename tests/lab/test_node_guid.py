"""VFs of mlx5 that were made without a MAC, on the lab's kernel: `init` and ADD give them a node GUID."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.lab.calls.conf import CONF
from tests.lab.calls.rdma_calls import FIRST, PREPARE, record

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

Lab = Callable[..., "subprocess.CompletedProcess[str]"]
NONE = "0000:0000:0000:0000"
FUNCTIONS = f"""
# The driver makes the RDMA devices of its VFs by itself.
guid() {{ cat $functions/0000:3b:01.$1/infiniband/*/node_guid; }}
of_mac() {{ echo $1 | awk -F: '{{ print $1 $2 ":" $3 "ff:fe" $4 ":" $5 $6 }}'; }}
own() {{ cat $functions/0000:3b:01.$1/net/*/address; }}
admin() {{ ip -j link show eth0 | jq -r ".[0].vfinfo_list[$1].address"; }}
echo '{json.dumps(CONF)}' >/tmp/conf.json
"""
MADE = PREPARE.replace("rdma link add rx$vf type rxe netdev $netdev", ": $netdev")


def run(lab: Lab, script: str) -> list[str]:
    done = lab(MADE + FUNCTIONS + script, "-a", "mlx5chip.npf=2", timeout_s=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_add_gives_a_vf_its_node_guid_once(lab: Lab, mode: str) -> None:
    """The VF's own MAC makes it; DEL and a second pod leave it, and the netdev that was made then."""
    lines = run(
        lab,
        f"""
        rdma system set netns {mode}
        guid 0; mac=$(own 0)
        {record("pod", FIRST)}
        add
        [ "$(admin 0)" = $mac ] && [ $(inside cat /sys/class/net/net1/address) = $mac ] && echo own mac
        del; [ $(guid 0) = $(of_mac $mac) ] && [ "$(admin 0)" = $mac ] && echo own guid
        index=$(cat $functions/0000:3b:01.0/net/*/ifindex); prepared
        add; del; same; [ $(guid 0) = $(of_mac $mac) ] && echo kept
        [ $index = $(cat $functions/0000:3b:01.0/net/*/ifindex) ] && echo not bound again
        """,
    )
    kept = ["add 0 null", "del 0", "same", "kept", "not bound again"]
    assert lines == [NONE, "add 0 null", "own mac", "del 0", "own guid", *kept]


def test_an_add_that_is_killed_while_the_vf_has_no_driver_is_undone(lab: Lab) -> None:
    """DEL binds the driver; the VF has its MAC, its name and a node GUID, and the next pod gets it."""
    lines = run(
        lab,
        f"""
        mac=$(own 0); name=$(ls $functions/0000:3b:01.0/net)
        {record("pod", FIRST)}
        export CNI_CONTAINERID=pod CNI_NETNS=/run/netns/pod
        export CNI_ARGS='IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;K8S_POD_UID=pod'
        CNI_COMMAND=ADD {sys.executable} -m cni </tmp/conf.json >/tmp/answer 2>/tmp/log & pid=$!
        until [ ! -e $functions/0000:3b:01.0/driver ]; do :; done
        kill -9 $pid; wait $pid 2>/dev/null || echo killed
        phase; jq -r .set.mac /var/lib/mooring/vfs/0000:3b:01.0.json | sed "s/$mac/own/"
        del; phase
        [ $(ls $functions/0000:3b:01.0/net) = $name ] && [ $(own 0) = $mac ] && echo back
        [ $(guid 0) = $(of_mac $mac) ] && echo own guid
        prepared; add; del; same
        """,
    )
    # The shell may name the job that was killed.
    expected = ["killed", "taking", "own", "del 0", "none", "back", "own guid", "add 0 null", "del 0", "same"]
    assert [line for line in lines if line != "Killed"] == expected


def test_init_gives_bound_vfs_a_node_guid_and_spoof_check_to_new_ones(lab: Lab) -> None:
    """Four VFs were made by hand; then two are made by `init`."""
    lines = run(
        lab,
        f"""
        offer() {{ printf 'v: 1\\npfs:\\n- match: {{name: eth0}}\\n  init: {{vfs: %s}}\\n' $1 >/tmp/offer.yaml; }}
        init() {{
          {sys.executable} -m advertiser init --offer /tmp/offer.yaml --node-name n1 2>>/tmp/log; echo init $?
        }}
        guids() {{ cat $functions/0000:3b:01.?/infiniband/*/node_guid | sort -u | wc -l; }}
        spoofchk() {{ ip -j link show eth0 | jq -c '[.[0].vfinfo_list[].spoofchk]'; }}
        guids; offer 4; init; guids; spoofchk
        [ $(guid 3) = $(of_mac $(admin 3)) ] && echo of its mac
        init; [ $(grep -c 'VF now has a node GUID' /tmp/log) = 4 ] && echo once
        offer 2; init; guids; spoofchk
        """,
    )
    assert lines == [
        *("1", "init 0", "4", "[false,false,false,false]", "of its mac", "init 0", "once"),
        *("init 0", "2", "[true,true]"),
    ]


def test_init_leaves_vfs_that_the_host_uses(lab: Lab) -> None:
    """One has a default route, a macvlan is on another, a process has a context on the third."""
    lines = run(
        lab,
        f"""
        printf 'v: 1\\npfs:\\n- match: {{name: eth0}}\\n  init: {{vfs: 4}}\\n' >/tmp/offer.yaml
        init() {{
          {sys.executable} -m advertiser init --offer /tmp/offer.yaml --node-name n1 2>/tmp/log; echo init $?
          for vf in 0 1 2 3; do guid $vf; done | grep -c {NONE} || true
        }}
        name() {{ ls $functions/0000:3b:01.$1/net; }}
        ip address add 10.9.0.1/24 dev $(name 0); ip link set $(name 0) up; ip route add default via 10.9.0.2
        ip link add link $(name 1) name over type macvlan
        {sys.executable} tests/lab/inside/verbs_process.py 0000:3b:01.2 context >/tmp/heard & pid=$!
        until grep -q ready /tmp/heard 2>/dev/null; do sleep 0.05; done
        init; jq -r 'select(.event == "VF still has no node GUID") | "\\(.vf) \\(.reason)"' /tmp/log |
          sed "s/$(name 0)\\|$(name 1)/netdev/; s/uses .* (process .*/process/"
        kill $pid; wait $pid 2>/dev/null || true
        ip address del 10.9.0.1/24 dev $(name 0); ip link del over; init
        """,
    )
    assert [line for line in lines if line != "Terminated"] == [
        *("init 0", "3"),
        "0 the host uses netdev (IPv4 default route)",
        "1 the host uses netdev (macvlan over)",
        "2 the host process",
        *("init 0", "0"),
    ]
