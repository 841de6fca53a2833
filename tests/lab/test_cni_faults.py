"""All or nothing, on each NIC of the lab: ADD and DEL broken where they leave the process."""

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from os import sched_getaffinity
from pathlib import Path
from typing import Any

import pytest

from tests.cni.loops.fault_report import assert_nothing_is_left
from tests.lab.calls.rdma_calls import CONF, Lab, run, second
from tests.lab.nics import INFINIBAND, REBIND, Nic, one_of_each, with_nic
from tests.support.seeds import Part

pytestmark = pytest.mark.lab

# What a VF is given before its driver is bound, as `init` does it: mlx5 makes the node GUID of the admin MAC on
# Ethernet, and reads both GUIDs at the PF on InfiniBand. Nothing else: an ADD enrols mlx5's VFs in rate scheduling.
GIVEN = {
    "simvf": ":",
    # The `$functions` of rdma_calls.PREPARE.
    "mlx5": f"ip link set $pf vf $vf mac $(cat $functions/0000:3b:01.$vf/net/*/address){REBIND}",
    "infiniband": INFINIBAND.init,
    "alone": INFINIBAND.init,
    "no-ipoib": f"echo 2 >/sys/module/mlx5chip/parameters/no_ipoib\n{INFINIBAND.init}",
}
# RDMA devices that are given alone: requested without the netdevs that they have, or without having any.
ALONE, WITHOUT_IPOIB = (replace(INFINIBAND, name=name) for name in ("alone", "no-ipoib"))
# And as a host has them: up, and with a name besides the name; down is what they are in the middle of an ADD.
FOUND_UP = """
as_init_leaves_them 2
for vf in 0 1 2; do
  [ -e $functions/0000:3b:01.$vf/net ] || continue
  netdev=$(ls $functions/0000:3b:01.$vf/net); ip link property add dev $netdev altname vf$vf; ip link set $netdev up
done
prepared
"""
FAULTS = Path(__file__).parents[1] / "cni/loops/fault_loop.py"
# The calls that an ADD of three VFs makes: a kind that is missing here was not broken.
KINDS = frozenset(
    {
        *(
            "cni.kernel.rtnetlink.exchange",
            "mooring.nic.rdma_netlink.exchange",
            "cni.kernel.netns.enter",
            "cni.kernel.pod_link.announce",
            "subprocess.Popen",
        ),
        *("vf_settings", "fcntl.flock", "os.fsync", "Path.replace", "Path.read_text"),
    }
)
# What only a netdev needs, and its addresses.
OF_NETDEVS = frozenset({"cni.kernel.rtnetlink.exchange", "cni.kernel.pod_link.announce", "subprocess.Popen"})


@pytest.mark.timeout(3700)
@pytest.mark.parametrize("mode", ["shared", "exclusive"])
@pytest.mark.parametrize("command", ["ADD", "DEL"])
@one_of_each(ALONE, WITHOUT_IPOIB)
@pytest.mark.slow
def test_a_call_broken_anywhere_leaves_nothing(lab: Lab, part: Part, nic: Nic, mode: str, command: str) -> None:
    """Calls that leave the process fail or are killed: links, RDMA devices, settings and ledger are as before.

    What follows is DEL, or the next ADD, or the reconciler. An ordinary run boots the lab once for its part of the
    calls, on mlx5 Ethernet. A whole run takes each NIC, and shares each among as many boots as there are cores, less
    the one of the other tests.
    """
    boots = max(1, len(sched_getaffinity(0)) - 1) if part.whole else 1
    setting = {
        "command": command,
        "part": part.document(),
        "environment": {
            "CNI_CONTAINERID": "pod",
            "CNI_NETNS": "/run/netns/pod",
            "CNI_IFNAME": "eth0",
            "CNI_PATH": "/usr/lib/cni",
            "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAME=p;K8S_POD_UID=pod",
        },
        "conf": CONF,
        "vf_table": None,
        "ledger": "/var/lib/mooring/vfs",
        "ipam": "/run/ipam",
    }

    # Every setting that its driver has, a MAC or a GUID; one that goes to another network; and one plain.
    three = (nic.vf(0, **nic.wishes), second(nic), nic.vf(2))
    if nic in (ALONE, WITHOUT_IPOIB):
        # The last one takes its netdev along, if it has one.
        three = (nic.vf(0, **nic.wishes, netdev=False), nic.vf(1, netdev=False), nic.vf(2))
    on_nic = with_nic(lab, replace(nic, init=GIVEN[nic.name]))

    def break_some(first: int) -> dict[str, Any]:
        loop = f"{sys.executable} {FAULTS} /tmp/setting.json {first} {boots} 2>/tmp/log || tail -20 /tmp/log"
        script = f"{FOUND_UP}cat >/tmp/setting.json <<'END'\n{json.dumps(setting)}\nEND\n{loop}"
        lines = run(on_nic, script, *three, mode=mode, timeout_s=3660)
        report: dict[str, Any] = json.loads(lines[-1])
        return report

    with ThreadPoolExecutor(boots) as pool:
        reports = list(pool.map(break_some, range(1, boots + 1)))
    wanted = KINDS if command == "ADD" else KINDS - {"cni.kernel.pod_link.announce"} | {"Path.unlink"}
    wanted = wanted - OF_NETDEVS if nic is WITHOUT_IPOIB else wanted
    assert_nothing_is_left(part, reports, wanted)
    if part.whole:
        assert_every_call_was_due(reports, wanted)


def assert_every_call_was_due(reports: Sequence[dict[str, Any]], wanted: frozenset[str]) -> None:
    """Hold the boots to their shares: together they had every call of each kind that each of them counted."""
    for way in ("error", "kill"):
        due = [report[name][way] for report in reports for name in ("tried", "missed")]
        for kind in wanted:
            # Threads look more or less often for what they wait for: one boot may have counted more than another.
            least = min(report["calls"][kind] for report in reports)
            assert {number for kinds in due for number in kinds.get(kind, ())} >= set(range(1, least + 1))
