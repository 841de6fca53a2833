"""The counters of held VFs on the lab kernel, as a scrape of the node's server gets them: shared and exclusive mode."""

import json
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.lab.calls.rdma_calls import Lab, run, second
from tests.lab.nics import ETHERNET, INFINIBAND, SIMVF, Nic, with_nic

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MODES = pytest.mark.parametrize("mode", ["shared", "exclusive"])
# scrape NAME: one page, as JSON under that name.
SERVED = f"""
serve() {{
  {sys.executable} -m cni serve --node-name n1 --metrics-addr 127.0.0.1:9100 >/tmp/server.log 2>&1 & server=$!
  until_true curl -sf -o /dev/null http://127.0.0.1:9100/none
}}
scrape() {{ curl -sf http://127.0.0.1:9100/metrics | jq -Rs --arg name $1 '{{($name): .}}' | jq -c .; }}
# A page is made every few seconds at most.
counted() {{ curl -sf http://127.0.0.1:9100/metrics | grep -q "counter=\\"$1\\"}} [1-9]"; }}
own_netns() {{ readlink /proc/$server/task/*/ns/net | sort -u | wc -l; }}
"""
Samples = dict[tuple[str, ...], float]


def scraped(text: str) -> dict[str, Samples]:
    """Return the samples of each metric by interface, port and counter; every one names the pod and its namespace."""
    found: dict[str, Samples] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if "interface" in sample.labels:
                key = tuple(sample.labels[name] for name in ("interface", "port", "counter") if name in sample.labels)
                found.setdefault(sample.name, {})[key] = sample.value
    return found


def pages(lines: list[str]) -> dict[str, str]:
    return {name: text for line in lines if line.startswith("{") for name, text in json.loads(line).items()}


@MODES
@pytest.mark.parametrize("nic", ETHERNET)
def test_a_pods_counters_are_served_wherever_its_devices_are(lab: Lab, nic: Nic, mode: str) -> None:
    """What the pod's traffic counts on netdev and RDMA device is on the page, under its name and its rail.

    The server's threads are in the host's namespace afterwards, and the pod's namespace ends as soon as it is deleted.
    """
    # What soft-RoCE counts itself, and what the port of a real device does.
    counters, counter = ("hw_counters", "sent_pkts") if nic is SIMVF else ("counters", "unicast_xmit_packets")
    lines = run(
        with_nic(lab, nic),
        f"""{SERVED}
        device={'"ip netns exec pod"' if mode == "exclusive" else ""}
        add; serve; inside ip link set lo up
        inside ibv_rc_pingpong -e -n 50 -d $rdma0 -g 0 >/tmp/pong 2>&1 & pong=$!
        until_true sh -c 'ip netns exec pod rdma res show qp | grep -q "type RC"'
        inside ibv_rc_pingpong -e -n 50 -d $rdma1 -g 0 127.0.0.1 >/tmp/ping 2>&1 || cat /tmp/ping /tmp/pong
        wait $pong || cat /tmp/pong
        until_true counted {counter}; scrape page
        echo netns $(own_netns)
        echo sent $($device cat $functions/0000:3b:01.0/infiniband/$rdma0/ports/1/{counters}/{counter})
        echo tx $(inside cat /sys/class/net/net1/statistics/tx_packets)
        kill $server; wait $server; del; same
        """,
        nic.vf(0),
        second(nic),
        mode=mode,
    )
    found = scraped(pages(lines)["page"])
    told = dict(line.split() for line in lines if line.split()[0] in ("netns", "sent", "tx"))
    metric = f"mooring_vf_rdma_{'hw' if nic is SIMVF else 'port'}_counter"
    assert found[metric][("net1", "1", counter)] == float(told["sent"]) > 0
    assert 0 < found["mooring_vf_netdev_tx_packets_total"][("net1",)] <= float(told["tx"])
    assert found["sriov_kubepoddevice"] == {("net1",): 1, ("rdma7",): 1}
    assert ("sriov_vf_tx_bytes" in found) == (nic is not SIMVF)
    assert told["netns"] == "1"
    assert lines[-2:] == ["del 0", "same"]


def test_a_pf_with_more_vfs_than_the_kernels_list_has_room_for_is_read_whole(lab: Lab) -> None:
    """With statistics the list's own length wraps near 54 VFs; all of them are in the message."""
    script = f"""
        ip link set eth0 up; echo 128 >/sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs
        {sys.executable} -c '
from cni.kernel.counters.vf_statistics import vf_statistics
found = vf_statistics("eth0")
print(sorted(found) == list(range(128)), {{len(each) for each in found.values()}})'
        """
    done = lab(script, "-a", "simpci.totalvfs=128")
    assert done.stdout.splitlines() == ["True {8}"], done.stdout + done.stderr


@pytest.mark.parametrize("mode", ["exclusive", pytest.param("shared", marks=pytest.mark.other_nic)])
def test_on_infiniband_netdev_and_pf_are_read(lab: Lab, mode: str) -> None:
    """IPoIB's netdev in the pod, and what mlx5's PF counts."""
    lines = run(
        with_nic(lab, INFINIBAND),
        f"{SERVED} add; serve; scrape page; kill $server; wait $server; del; same",
        INFINIBAND.vf(0),
        second(INFINIBAND),
        mode=mode,
    )
    found = scraped(pages(lines)["page"])
    assert found["sriov_vf_rx_bytes"].keys() == {("net1",), ("rdma7",)}
    assert found["mooring_vf_netdev_rx_packets_total"].keys() == {("net1",), ("rdma7",)}
    assert lines[-2:] == ["del 0", "same"]
