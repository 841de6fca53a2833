"""What a pod with CAP_NET_ADMIN does to its VF, on the lab kernel: where it is, and what is left on it."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.lab.calls import infiniband_calls, rdma_calls
from tests.lab.calls.conf import ENVIRONMENT
from tests.lab.calls.conf import WITH_ADDRESSES as CONF
from tests.lab.calls.plain_calls import run as run_plain
from tests.lab.nics import MLX5, SIMVF, with_nic
from tests.support.seeds import Part

pytestmark = [pytest.mark.lab, pytest.mark.slow]

Lab = Callable[..., Any]
VF = {"pf": "eth0", "vf": 1, "pci": "0000:3b:01.1", "link": "ethernet", "network": "default"}
ONE = f"""
cat >/var/lib/mooring/pods/u1.json <<'END'
{json.dumps({"v": 1, "pod": "ns/p", "assignment": {"v": 1, "uid": "u1", "node": "n1", "vfs": [VF]}})}
END
ip netns add accomplice
# What must be as before: a driver that is bound again makes a netdev with another index, and another MAC of its own.
state() {{
  ip -d -j link show | jq -c 'map({{ifname, address, mtu, flags, altnames, vfinfo_list, parentdev}}) | sort_by(.ifname)'
  ls /var/lib/mooring/vfs /run/ipam/net 2>/dev/null | grep -E '^[0-9]' || true
}}
state >/tmp/before
"""
KINDS = ["cni.kernel.rtnetlink.exchange", "cni.kernel.netns.enter"]
# One pass of the reconciler for each number of seconds, as one server that lives as long.
RECONCILE = """
import sys
from pathlib import Path
from cni.kernel.sysfs import Sysfs
from cni.server.dispatch import BOOT_ID
from cni.server.metrics import Metrics
from cni.server.reconcile import Reconciler
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from mooring.nic.vf_settings import RtnetlinkVfSettings
places = Sysfs(Path(sys.argv[1])), Ledger(Path("/var/lib/mooring")), Path("/run/mooring")
node = Node(*places, RtnetlinkVfSettings(), BOOT_ID.read_text().strip())
reconciler = Reconciler(lambda: node, Metrics())
for now in sys.argv[2:]:
    reconciler.reconcile(float(now))
"""
PASSES = f"""
passes() {{ {sys.executable} -c '{RECONCILE}' "$@" >>/tmp/log 2>&1; }}
entries() {{ ls /var/lib/mooring/vfs | wc -l; }}
away() {{ ip -n accomplice -j link show | jq -c 'map(.ifname) - ["lo"]'; }}
"""


def run(lab: Lab, script: str, *options: str, timeout_s: float = 280) -> list[str]:
    return run_plain(lab, SIMVF, ONE + PASSES + script, *options, timeout_s=timeout_s)


@pytest.mark.timeout(1500)
def test_a_link_that_takes_the_vfs_place_at_any_moment_stays_with_the_pod(lab: Lab, part: Part) -> None:
    """The kernel reports the VF's PCI address with its netdev, which a pod cannot forge, unlike name, MAC and index."""
    setting = {
        "part": part.document(),
        "environment": ENVIRONMENT,
        "conf": CONF,
        "vf_table": None,
        "ledger": "/var/lib/mooring/vfs",
        "ipam": "/run/ipam",
        "given": "net1",
        "kinds": KINDS,
    }
    script = f"""
        cat >/tmp/setting.json <<'END'\n{json.dumps(setting)}\nEND
        {sys.executable} -m tests.cni.loops.swap_loop /tmp/setting.json
        """
    report = json.loads(run(lab, script, timeout_s=1400)[-1])
    assert report["left_behind"] == {}, f"repeat with --seed {part.seed}: {report}"
    assert {kind.split()[0] for kind in report["tried"]} == set(KINDS), report


def test_a_vf_that_the_pod_moved_to_an_accomplice_is_taken_back_by_del(lab: Lab) -> None:
    """Its driver is bound again: the netdev is made in the host's namespace, and is as it was found."""
    lines = run(
        lab,
        """
        call ADD; echo $status; ip -n pod link set net1 netns accomplice name stolen; away
        call DEL; echo $status; away; entries; same all
        call ADD; echo $status; ip -n pod link set net1 netns accomplice name stolen; ip netns delete pod
        CNI_NETNS= call DEL; echo $status; away; entries; same all
        """,
    )
    assert lines == ["0", '["stolen"]', "0", "[]", "0", "same all", *("0", "0", "[]", "0", "same all")]


def test_a_missing_path_alone_takes_no_vf_from_a_namespace_that_a_process_keeps(lab: Lab) -> None:
    """Only when the pod's record is gone as well is it taken; the shim removes that of a pod without sandboxes."""
    lines = run(
        lab,
        """
        call ADD; echo $status
        ip netns exec pod sleep 1000 & keeper=$!
        until [ "$(readlink /proc/$keeper/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
        ip netns delete pod
        passes /sys 100 200 300; entries; nsenter --net=/proc/$keeper/ns/net ip -j link show net1 | jq -r '.[].ifname'
        rm /var/lib/mooring/pods/u1.json
        passes /sys 100; entries; passes /sys 100 120; entries; same all
        """,
    )
    assert lines == ["0", "1", "net1", "1", "0", "same all"]


def test_a_del_killed_before_it_has_taken_the_vf_back_is_completed_by_the_reconciler(lab: Lab) -> None:
    """The entry says that the runtime has deleted the container; the pod's record is still there."""
    lines = run(
        lab,
        f"""
        call ADD; echo $status; ip -n pod link set net1 netns accomplice name stolen; ip netns delete pod
        cat >/tmp/dies.py <<'END'
import os, signal, sys
from cni.kernel import driver
driver._write = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
from cni.__main__ import main
sys.exit(main())
END
        CNI_COMMAND=DEL CNI_NETNS= {sys.executable} /tmp/dies.py </tmp/conf.json >/tmp/answer 2>/tmp/log || echo $?
        away; jq -c '[.phase, .deleted]' /var/lib/mooring/vfs/*.json
        passes /sys 100; away; entries; same all
        """,
    )
    assert lines == ["0", "137", '["stolen"]', '["returning",true]', "[]", "0", "same all"]


@pytest.mark.parametrize("end", ["del", "ip netns delete pod; del"])
def test_devices_that_the_pod_moved_to_an_accomplice_are_taken_back_in_exclusive_mode(lab: Lab, end: str) -> None:
    """On mlx5, whose driver makes the RDMA device too: both of the VF's devices, or the RDMA device alone."""
    lines = rdma_calls.run(
        with_nic(lab, MLX5),
        f"""
        device=$(jq -r .rdma /dev/null; ls $functions/0000:3b:01.0/infiniband)
        ip netns add accomplice
        away() {{ ip netns exec accomplice rdma -j dev show | jq -c length; }}
        add; inside rdma dev set $device netns accomplice; away; del; away; same
        add; inside rdma dev set $device netns accomplice; inside ip link set net1 netns accomplice; {end}; away
        same; test -e /sys/class/infiniband/$device && echo device
        """,
        rdma_calls.FIRST,
        mode="exclusive",
    )
    assert lines == ["add 0 null", "1", "del 0", "0", "same", "add 0 null", "del 0", "0", "same", "device"]


@pytest.mark.parametrize("no_ipoib", [0, 2])
def test_an_infiniband_device_that_the_pod_moved_to_an_accomplice_is_taken_back(lab: Lab, no_ipoib: int) -> None:
    """In exclusive mode; without IPoIB on the VF the device is all that it has."""
    lines = infiniband_calls.run(
        lab,
        f"""
        make_vfs 0; echo {no_ipoib} >$parameters/no_ipoib; make_vfs 2; prepared
        device=$(verbs_of 0); ip netns add accomplice
        away() {{ ip netns exec accomplice rdma -j dev show | jq -c length; }}
        add; inside rdma dev set $device netns accomplice; away; del; away; same
        """,
        infiniband_calls.FIRST,
        mode="exclusive",
    )
    assert lines == ["add 0", "1", "del 0", "0", "same"]


REBIND = {"rebind_after_privileged": True}
# What the VF on the host has of programs, and how often a driver was rebound, with the seconds that took.
PROGRAMS = f"""
attach() {{ inside {sys.executable} -m tests.support.bpf_programs $1 net1; }}
programs() {{ {sys.executable} -c '
from pathlib import Path
from cni.kernel.netdev import netdev_state
from cni.kernel.sysfs import Sysfs
found = netdev_state.read(Sysfs(Path("/sys")).netdev("0000:3b:01.0"))
print(repr(found["xdp"]), repr(found["tcx"]), found["alias"] or "no alias")
'; }}
rebinds() {{ grep -cE "driver is rebound|rebinding its driver" /tmp/log || true; }}
privileged() {{ echo '{json.dumps({"v": 1, "pfs": {"0000:3b:00.0": REBIND}})}' >/var/lib/mooring/offer.json; }}
devices_of() {{ ls $functions/0000:3b:01.0/infiniband; }}
"""


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
@pytest.mark.parametrize(
    ("how", "rebinds"), [("xdp", 0), ("tcx", 1), ("xdp-link", 1), ("tcx-link", 1)], ids=lambda each: str(each)
)
def test_a_program_that_the_pod_attached_is_gone(lab: Lab, mode: str, how: str, rebinds: int) -> None:
    """One that netlink cannot detach, or that survives a move, goes with a rebind; its holder may still be there."""
    lines = rdma_calls.run(
        with_nic(lab, MLX5),
        f"""{PROGRAMS}
        devices_of >/tmp/devices; add; attach {how} >/tmp/attached & until_true grep -q attached /tmp/attached
        inside ip link set net1 alias theirs
        del; rebinds; programs; same; devices_of | cmp - /tmp/devices && echo devices
        add; inside ip -d -j link show net1 | jq -c '.[0].xdp'; del; rebinds
        """,
        rdma_calls.FIRST,
        mode=mode,
    )
    assert lines == [
        *("add 0 null", "del 0", str(rebinds), "'' '' no alias", "same", "devices"),
        *("add 0 null", "null", "del 0", "0"),
    ]


def test_the_offer_may_ask_for_a_rebind_after_pods_that_could_change_a_vf(lab: Lab) -> None:
    """Without the shim's note a pod could; with it the VF is given back as it is. A killed rebind is repeated."""
    lines = rdma_calls.run(
        with_nic(lab, MLX5),
        f"""{PROGRAMS} privileged
        add; del; rebinds; same
        add; touch /var/lib/mooring/pods/pod.unprivileged; del; rebinds; same
        rm /var/lib/mooring/pods/pod.unprivileged; add; ip netns delete pod; del; rebinds; same
        """,
        rdma_calls.FIRST,
        mode="exclusive",
    )
    rebound = ("add 0 null", "del 0", "1", "same")
    assert lines == [*rebound, "add 0 null", "del 0", "0", "same", *rebound]


def test_an_infiniband_vf_without_a_netdev_is_rebound_where_the_offer_asks_for_it(lab: Lab) -> None:
    """The RDMA device is all that such a VF has, and what a pod did to it cannot be read."""
    # Without a repair, so that the VF keeps having no GUID, as the other tests on InfiniBand leave it.
    offer = json.dumps({"v": 1, "pfs": {infiniband_calls.PF: REBIND | {"repair_node_guid": False}}})
    lines = infiniband_calls.run(
        lab,
        f"""
        make_vfs 0; echo 2 >$parameters/no_ipoib; make_vfs 2; prepared
        echo '{offer}' >/var/lib/mooring/offer.json
        add; del; grep -cE "driver is rebound|rebinding its driver" /tmp/log; same
        """,
        infiniband_calls.FIRST,
        mode="exclusive",
    )
    assert lines == ["add 0", "del 0", "1", "same"]


def test_names_of_any_bytes_keep_no_vf(lab: Lab) -> None:
    """Of a netdev and an RDMA device that ADD finds, and of those in a pod whose ledger entry is lost."""
    lines = rdma_calls.run(
        with_nic(lab, MLX5),
        """
        odd=$(printf 'a\\377\\376')
        netdev=$(ls $functions/0000:3b:01.0/net); device=$(ls $functions/0000:3b:01.0/infiniband)
        ip link set $netdev name $odd; rdma dev set $device name $odd
        add; jq -c '[.original.name, .rdma]' /var/lib/mooring/vfs/*.json; del; phase; ls $functions/0000:3b:01.0/net
        add; inside ip link set net1 down; inside ip link set net1 name $odd; inside rdma dev set mo0-3b08 name $odd
        rm /var/lib/mooring/vfs/*.json
        del; phase; ls $functions/0000:3b:01.0/net $functions/0000:3b:01.0/infiniband | grep -c "$odd" || true
        """,
        rdma_calls.FIRST,
        mode="exclusive",
    )
    assert lines == [
        *("add 0 null", '["mo0-3b08","mo0-3b08"]', "del 0", "none", "mo0-3b08"),
        *("add 0 null", "del 0", "none", "0"),
    ]


READ = """
import json, sys
from cni.kernel import netlink
from cni.kernel.netdev import netdev_state
print(json.dumps(netdev_state.read(netlink.index_of(sys.argv[1])), indent=0))
"""
# hwtstamp_config of include/uapi/linux/net_tstamp.h: every frame is stamped, sent or received.
STAMPS = """
import ctypes, fcntl, socket, struct
config = ctypes.create_string_buffer(struct.pack("=3I", 0, 1, 1))
fcntl.ioctl(socket.socket(), 0x89B0, struct.pack("=16sQ16x", b"net1", ctypes.addressof(config)))
"""


def test_addresses_that_a_pod_gave_a_netdev_that_is_up_are_not_the_next_pods(lab: Lab) -> None:
    """mlx5e_set_mac takes any address of a host at any time, mlx5e_change_nic_mtu any MTU up to the port's."""
    lines = rdma_calls.run(
        with_nic(lab, MLX5),
        """
        add; inside ip link set net1 up; inside ip link set net1 address 02:00:00:00:00:66 mtu 9978
        inside ip -j link show net1 | jq -c '.[0] | [.address, .mtu]'
        del; same
        """,
        rdma_calls.FIRST,
    )
    assert lines == ["add 0 null", '["02:00:00:00:00:66",9978]', "del 0", "same"]


def test_what_a_pod_set_by_ethtool_is_not_the_next_pods(lab: Lab) -> None:
    """A rule that leads a flow to one queue, an RSS context, a table, a queue that waits, rings, stamps, a tunable."""
    lines = run(
        lab,
        f"""
        netdev() {{ ls /sys/bus/pci/devices/0000:3b:01.1/net; }}
        set_state() {{
          {sys.executable} -c '{READ}' $(netdev) >/tmp/set-$1
        }}
        set_state before; index=$(cat /sys/class/net/$(netdev)/ifindex)
        call ADD; echo $status
        in_pod() {{ ip netns exec pod "$@" >>/tmp/log 2>&1 || echo failed: "$@"; }}
        in_pod ethtool -N net1 flow-type tcp4 dst-port 22 action 1
        in_pod ethtool -X net1 context new equal 2
        in_pod ethtool -X net1 weight 1 0 0 1
        in_pod ethtool --per-queue net1 queue_mask 0x4 --coalesce rx-usecs 1000
        in_pod ethtool -G net1 rx 64
        in_pod ethtool --set-tunable net1 rx-copybreak 512
        in_pod {sys.executable} -c '{STAMPS}'
        ip netns exec pod {sys.executable} -c '{READ}' net1 >/tmp/set-inside
        jq -rs '.[0] as $was | .[1] | [to_entries[] | select(.value != $was[.key]) | .key] | sort | join(" ")' \
          /tmp/set-before /tmp/set-inside
        call DEL; echo $status; set_state after
        diff /tmp/set-before /tmp/set-after && [ $(cat /sys/class/net/$(netdev)/ifindex) = $index ] && echo as it was
        grep -c '"rss_contexts": ""' /tmp/set-after; entries
        """,
    )
    changed = "queue_coalesce rings rss rss_contexts rules time_stamps tunables"
    assert lines == ["0", changed, "0", "as it was", "1", "0"]


def test_a_hosts_rss_contexts_that_a_pod_changed_go_with_a_rebind(lab: Lab) -> None:
    """They cannot be made again under their numbers: nothing of the pod's stays, and the log says what is lost."""
    lines = run(
        lab,
        """
        netdev() { ls /sys/bus/pci/devices/0000:3b:01.1/net; }
        ethtool -X $(netdev) context new equal 2 >>/tmp/log; index=$(cat /sys/class/net/$(netdev)/ifindex)
        call ADD; echo $status
        call DEL; echo $status; [ $(cat /sys/class/net/$(netdev)/ifindex) = $index ] && echo unchanged
        call ADD; echo $status; ip netns exec pod ethtool -X net1 context new equal 1 >>/tmp/log
        call DEL; echo $status; [ $(cat /sys/class/net/$(netdev)/ifindex) = $index ] || echo rebound
        jq -r 'select(.event == "vf'"'"'s new netdev lacks settings of the host") | .kinds | join(" ")' /tmp/log
        entries
        """,
    )
    assert lines[:6] == ["0", "0", "unchanged", "0", "0", "rebound"]
    assert "rss_contexts" in lines[6]
    assert lines[7] == "0"


def test_what_a_nic_does_by_itself_with_its_queues_is_no_trace_of_a_pod(lab: Lab) -> None:
    """mlx5 has queues while the netdev is open, and adapts each one's coalescing (net_dim_get_rx_moderation)."""
    lines = run_plain(
        lab,
        MLX5,
        """
        index() { ip -j link show $(ls /sys/bus/pci/devices/0000:3b:01.1/net) | jq '.[0].ifindex'; }
        netdev=$(ls /sys/bus/pci/devices/0000:3b:01.1/net)
        for state in down up; do
          ip link set $netdev $state; before=$(index); prepared
          call ADD; echo $status; ip -n pod link set net1 up
          ip netns exec pod ethtool --per-queue net1 queue_mask 0x1 --coalesce adaptive-rx off rx-usecs 900
          ip netns exec pod ethtool --per-queue net1 queue_mask 0x1 --show-coalesce | grep -c 'rx-usecs:.900'
          call DEL; echo $status; [ $(index) = $before ] && echo not bound again
        done
        ip link set $netdev up
        ethtool --per-queue $netdev queue_mask 0x1 --show-coalesce | grep -c 'Adaptive RX: on'
        """,
    )
    once = ["0", "1", "0", "not bound again"]
    assert lines == [*once, *once, "1"]
