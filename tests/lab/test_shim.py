"""The shim in the lab: containers on real containerd and runc open the real uverbs of their own VFs, and no other's."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.containerd]

Lab = Callable[..., "subprocess.CompletedProcess[str]"]
SCENARIO = Path(__file__).parent / "inside/shim_scenario.py"
PREPARE = """
set -e
ip link set lo up; ip link set eth0 up; ip link set wire0 up
echo 3 >/sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs
for vf in /sys/bus/pci/devices/0000:3b:00.0/virtfn*; do
  netdev=$(ls $vf/net); ip link set $netdev up; rdma link add rdma_$netdev type rxe netdev $netdev
done
"""


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
@pytest.mark.slow
def test_a_container_opens_the_uverbs_of_its_own_vf_only(lab: Lab, mode: str) -> None:
    """This holds in both modes of the RDMA stack; afterwards the VFs are the host's again, under their names."""
    done = lab(f"{PREPARE}\nrdma system set netns {mode}\n{sys.executable} {SCENARIO}", timeout_s=280)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"first"')))
    for index, name in enumerate(("first", "second")):
        seen = found[name]
        assert seen["devices"] == ["rdma_cm", f"uverbs{index}"]
        assert seen["own"] == "opened"
        assert "Operation not permitted" in seen["neighbours"]
        described = seen["described"][0]
        assert (described["name"], described["uverbs"]) == ("eth0", f"uverbs{index}")
        assert seen["address"] == f"inet {described['ips'][0].partition('/')[0]}"
        assert seen["nccl"] == f"={described['rdma']}"
    before, during, after = found["rdma"]
    assert (len(before), len(during)) == (3, 1 if mode == "exclusive" else 3)
    assert after == before
    assert found["ledger"] == []
    assert found["links"]["after"] == found["links"]["before"]
