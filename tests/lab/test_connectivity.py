"""The scripts of `kubectl mooring connectivity test` in the lab: a real ib_write_bw between VFs of two namespaces."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.plugin.connectivity.plan import read_log

pytestmark = pytest.mark.lab

Lab = Callable[..., "subprocess.CompletedProcess[str]"]
SCRIPTS = Path("cli/plugin/connectivity")
# Two pods with a VF of each PF, in exclusive mode. perftest computes rates by the CPU's clock, which User-Mode Linux
# does not show: /proc/cpuinfo gets one.
PODS = f"""
set -e
ip link set lo up
rdma system set netns exclusive
for rail in 0 1; do
  ip link set eth$rail up; ip link set wire$rail up
  echo 2 >/sys/bus/pci/devices/0000:3b:00.$rail/sriov_numvfs
done
pods=0
for pod in a b; do
  for rail in 0 1; do
    netdev=$(ls /sys/bus/pci/devices/0000:3b:00.$rail/virtfn$pods/net)
    ip link set $netdev up; rdma link add rx$pod$rail type rxe netdev $netdev
    eval netdev_$pod$rail=$netdev
  done
  pods=$((pods + 1))
done
pods=0
for pod in a b; do
  pods=$((pods + 1))
  ip netns add $pod; ip -n $pod link set lo up
  for rail in 0 1; do
    eval netdev=\\$netdev_$pod$rail
    ip link set $netdev netns $pod; rdma dev set rx$pod$rail netns $pod
    ip -n $pod addr add 10.0.$rail.$pods/24 dev $netdev; ip -n $pod link set $netdev up
  done
done
sed 's/^bogomips.*/&\\ncpu MHz : 2000.000/' /proc/cpuinfo >/tmp/cpuinfo; mount --bind /tmp/cpuinfo /proc/cpuinfo
export PORT=18515 SECONDS_EACH=2
NCCL_IB_HCA==rxa0,rxa1 ip netns exec a sh {SCRIPTS}/serve.sh >/tmp/server 2>&1 & server=$!
for attempt in $(seq 900); do grep -q ready /tmp/server && break; sleep 0.1; done
measure() {{
  PAIRS=$1 SERVER=10.0.0.1 NCCL_IB_HCA==rxb0,rxb1 ip netns exec b sh {SCRIPTS}/measure.sh
}}
"""


def test_each_pair_of_rails_is_measured_and_what_reaches_nobody_is_a_fault(lab: Lab) -> None:
    """Rail 1 of one and rail 0 of the other pod have no way to each other."""
    done = lab(f"{PODS}\ncat /tmp/server\nmeasure '0:0 1:1 1:0'\nkill $server\n")
    assert done.returncode == 0, done.stdout + done.stderr
    said = read_log(done.stdout)
    assert said.is_ready
    assert said.is_done
    assert set(said.rates_gbps) == {(0, 0), (1, 1)}, done.stdout
    assert all(rate > 0 for rate in said.rates_gbps.values())
    assert said.failures == {(1, 0): "nothing arrived in 2 s"}


def test_a_pod_without_devices_and_an_image_without_perftest_say_so(lab: Lab) -> None:
    """Neither waits for the other pod."""
    done = lab(
        f"""
        sh {SCRIPTS}/serve.sh; PAIRS=0:0 sh {SCRIPTS}/measure.sh
        mkdir /tmp/bin; for tool in tr printf; do ln -s $(command -v $tool) /tmp/bin; done
        export NCCL_IB_HCA==rx0 PATH=/tmp/bin
        /bin/sh {SCRIPTS}/serve.sh; PAIRS=0:0 /bin/sh {SCRIPTS}/measure.sh
        true
        """
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split("\t")[1:] for line in done.stdout.splitlines()]
    no_devices = "NCCL_IB_HCA is empty: the pod has no RDMA devices whose names are known"
    no_tool = "the image has no ib_write_bw (perftest)"
    assert lines == [["fault", no_devices], ["fault", "-", no_devices], ["fault", no_tool], ["fault", "-", no_tool]]
