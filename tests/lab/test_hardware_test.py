"""`mooring-node hardware-test` on the lab kernel: a VF's life, traffic, planted differences, and what it gives back."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from cli.node.hardware.plan.checks import CHECKS
from cli.node.hardware.plan.recorded import read_recording
from cli.node.hardware.vf_life import RECORDING
from tests.lab.nics import FIRMWARE

pytestmark = pytest.mark.lab

Lab = Callable[..., "subprocess.CompletedProcess[str]"]
TEST = f"{sys.executable} -m cli.node hardware-test --report /tmp"
VF = {"pf": "eth0", "vf": 2, "pci": "0000:3b:01.2", "link": "ethernet", "network": "default"}
RECORD = json.dumps({"v": 1, "pod": "a/b", "assignment": {"v": 1, "uid": "u", "node": "n", "vfs": [VF]}})
# What a card does with a rate, which the modelled chip only stores.
RATES = {f"traffic.{name}" for name in ("max-rate", "burst", "rate-change", "min-rate")}
PREPARE = """
set -e
mkdir -p /var/lib/mooring/vfs /var/lib/mooring/pods
hostname the-lab; ip link set eth0 up; ip link set wire0 up
rdma system set netns exclusive
functions=/sys/bus/pci/devices
echo 4 >$functions/0000:3b:00.0/sriov_numvfs
add_all() {
  for function in $functions/*:3b:0[1-9].*; do
    [ -e $function/infiniband_verbs ] ||
      rdma link add rx${function##*:} type rxe netdev $(ls $function/net 2>&1) 2>/dev/null || true
  done
}
add_all
# The plain NIC's RDMA devices are made by hand: one whose VF is rebound comes back like a driver's.
while sleep 0.2; do add_all; done >/dev/null 2>&1 & maker=$!
state() {
  # "No admin MAC" comes back as the netdev's own on mlx5.
  ip -d -j link show | jq -c 'map({ifname, address, mtu, flags, altnames, parentdev,
    vfs: [.vfinfo_list[]? | del(.address)]}) | sort_by(.ifname)'
  rdma -j dev show | jq -c 'map(.ifname) | sort'; ls /run/netns; ls /var/lib/mooring/vfs /var/lib/mooring/pods
}
until_true() { for turn in $(seq 3000); do "$@" && return; sleep 0.05; done; echo "never: $*"; exit 1; }
held() { grep -qs '"phase":"held"' /var/lib/mooring/vfs/*.json; }
run() { status=0; "$@" >/tmp/text 2>/tmp/log || status=$?; }
same() {
  state >/tmp/now; cmp -s /tmp/before /tmp/now && echo same || { echo different; cat /tmp/before /tmp/now /tmp/log; }
}
# The kernel reports a link that has come up up to a second later (net/core/link_watch.c).
for link in eth0 wire0; do until_true grep -qxE 'up|unknown' /sys/class/net/$link/operstate; done
until_true grep -qx 1 /sys/class/net/eth0/carrier
"""


def run(lab: Lab, script: str, *options: str, timeout_s: float = 280) -> list[str]:
    done = lab(f"{PREPARE}{FIRMWARE}{script}\nkill $maker || true", *options, timeout_s=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def answers(line: str) -> dict[str, dict[str, Any]]:
    document = json.loads(line)
    found = {answer["id"]: answer for answer in document["answers"]}
    assert list(found) == [check.id for check in CHECKS]
    assert document["ok"] == all(answer["outcome"] != "differs" for answer in found.values())
    return found


def named(found: dict[str, dict[str, Any]], outcome: str) -> list[str]:
    return [name for name, answer in found.items() if answer["outcome"] == outcome]


@pytest.mark.timeout(500)
@pytest.mark.slow
def test_the_vendors_driver_is_asked_everything_and_does_what_was_recorded(lab: Lab) -> None:
    """Every check has an answer, and only the chip, which limits no rate, differs; without --vfs nothing changes.

    Afterwards the NIC is as before. The report names no host and no MAC.
    """
    lines = run(
        lab,
        f"""
        kill $maker; sleep 600 & maker=$!
        leave_out=$addresses; prepared
        run {TEST}; echo $status; same; [ $status = 0 ] || cat /tmp/log /tmp/text
        run {TEST} --vfs --traffic --seconds 1; jq -c . /tmp/mooring-hardware_*.json; same
        jq -c .checks /var/lib/mooring/hardware/0000:3b:00.0.json
        ip -j link show | jq -r '.[].address' | sort -u | grep -v 00:00:00:00:00:00 >/tmp/private
        echo the-lab >>/tmp/private
        grep -cFf /tmp/private /tmp/mooring-hardware_* | grep -v :0 || echo nothing private
        ls /tmp | grep json; tail -1 /tmp/text
        """,
        *("-a", "mlx5chip.npf=2"),
        timeout_s=480,
    )
    assert len(lines) == 8, lines
    first, same, second, then, kept, private, named_after, text = lines
    assert (first, same, then) == ("0", "same", "same")
    found = answers(second)
    assert named(found, "n/a") == ["sriov.numvfs", "settings.guid", "guid.zero"]
    assert {"traffic.max-rate"} <= set(named(found, "differs")) <= RATES
    assert set(named(found, "not asked")) <= {"traffic.min-rate"}
    cases = len(read_recording(RECORDING.read_text()).cases)
    assert found["settings.recorded"]["found"] == {"equal": cases, "different": []}
    assert found["traffic.counters"]["outcome"] == "ok"
    assert json.loads(kept)["counters"] == "shown"
    assert found["vf.rdma-device"]["found"] == {"exclusive": True, "devices-in-pod": 1}
    assert found["guid.node"]["found"] | {"before-rebind": ""} == {
        "before-add": "zero",
        "before-rebind": "",
        "after-rebind": "of-admin-mac",
    }
    assert found["mac.own"]["found"]["tried"][1]["accepted"]
    assert found["traffic.vlan"]["found"] == {"passes-without": True, "passes-with": False}
    assert found["traffic.spoofchk"]["found"] == {"passes-off": True, "passes-on": False}
    assert private == "nothing private"
    assert named_after.startswith("mooring-hardware_15b3-101d_mlx5-core_22.35.1012_6.12")
    assert f"{len(named(found, 'differs'))} differs" in text


@pytest.mark.slow
def test_what_a_nic_refuses_or_loses_is_told_and_vfs_in_use_are_not_taken(lab: Lab) -> None:
    """A NIC without trust and link state whose RDMA device does not return; three of four VFs have users."""
    status, report, home = run(
        lab,
        f"""
        kill $maker; sleep 30 & maker=$!
        echo $((32 | 64)) >/sys/module/simvf/parameters/refuse
        ip address add 192.0.2.1/24 dev $(ls $functions/0000:3b:01.1/net)
        echo '{RECORD}' >/var/lib/mooring/pods/u.json
        ip link set $(ls $functions/0000:3b:01.3/net) up
        ibv_rc_pingpong -e -d rx01.3 -g 0 >/dev/null 2>&1 & server=$!
        until_true sh -c 'rdma res show qp | grep -q "type RC"'
        run {TEST} --vfs; echo $status; jq -c . /tmp/mooring-hardware_*.json; kill $server
        ls /var/lib/mooring/vfs /run/netns | grep -c . || true
        """,
    )[:3]
    found = answers(report)
    assert found["vf.free"]["found"] == {
        "free": 1,
        "in-use": {
            "1": "its netdev has addresses",
            "2": "a pod record names it",
            "3": "processes use its RDMA device",
        },
    }
    assert named(found, "differs") == ["settings.trust", "settings.link-state", "rebind.time", "vf.restored"]
    assert found["settings.trust"]["why"] == "Operation not supported"
    assert found["settings.vlan"]["outcome"] == "ok"
    assert found["vf.restored"]["found"] == {"changed": ["rdma"]}
    assert (status, home) == ("1", "2")


@pytest.mark.slow
def test_what_it_took_is_given_back_when_it_is_stopped_and_by_the_next_run_when_it_is_killed(lab: Lab) -> None:
    """Ctrl-C ends it with status 2 and a report; SIGKILL leaves a ledger entry, which the next run begins with."""
    lines = run(
        lab,
        f"""
        state >/tmp/before
        {TEST} --vfs >/tmp/text 2>/tmp/log & test=$!
        until_true held; kill -KILL $test; wait $test || true; held && echo held
        setsid {TEST} --vfs >/tmp/text 2>/tmp/log & test=$!
        until_true grep -q 'given back' /tmp/log; until_true held; kill -TERM $test
        wait $test || echo $?
        same; tail -1 /tmp/text
        """,
    )
    # The shell may report the end of a killed job.
    held, status, home, text = (line for line in lines if line != "Killed")
    assert (held, status, home) == ("held", "2", "same")
    assert "not asked" in text


@pytest.mark.timeout(500)
@pytest.mark.slow
def test_two_hosts_send_through_both_ports_and_give_everything_back(lab: Lab) -> None:
    """Each has a PF, and its own namespaces of pods; --make-vfs makes the VFs of one, and removes them at the end."""
    lines = run(
        lab,
        f"""
        ip link add br0 type bridge; ip link set lo up; ip link set eth1 up
        for port in 0 1; do ip link set wire$port up master br0; done; ip link set br0 up
        echo 0 >$functions/0000:3b:00.0/sriov_numvfs; echo 2 >$functions/0000:3b:00.1/sriov_numvfs
        mkdir -p /run/netns
        other="--state /var/lib/other --run /run/other"
        alone() {{ unshare -m sh -c 'mount -t tmpfs none /run/netns && exec "$@"' sh "$@"; }}
        alone {TEST} --serve --pf eth1 --listen 127.0.0.1:7471 $other >/tmp/serve 2>&1 & served=$!
        until_true grep -q ^token /tmp/serve; token=$(sed -n 's/^token *//p' /tmp/serve)
        run alone {TEST} --vfs --traffic --make-vfs 2 --pf eth0 --rates 20 --seconds 1 \
          --peer 127.0.0.1:7471 --token $token
        wait $served; echo $?; jq -c . /tmp/mooring-hardware_*.json
        cat $functions/0000:3b:00.0/sriov_numvfs; ls /var/lib/other/vfs /var/lib/other/pods | grep -c json || true
        grep -c $token /tmp/mooring-hardware_*.txt || true
        """,
        timeout_s=480,
    )
    served, report, numvfs, left, private = lines
    assert (served, numvfs, left, private) == ("0", "0", "0", "0")
    found = answers(report)
    assert named(found, "not asked") in ([], ["traffic.min-rate"])
    of_mlx5_or_one_host = ["settings.guid", "settings.recorded", "guid.zero", "traffic.vlan", "traffic.spoofchk"]
    assert named(found, "n/a") == of_mlx5_or_one_host
    assert found["sriov.numvfs"]["found"].keys() >= {"make-s", "bound-more-s", "remove-s"}
    assert found["traffic.free"]["found"]["mbps"] > 0
    # The plain NIC limits rates, on a busy CPU not always well, and reserves none.
    assert set(named(found, "differs")) <= RATES
    assert found["traffic.rate-change"]["found"]["max_tx_rate"] == [20, 20]
    assert found["traffic.counters"]["outcome"] == "ok"
