"""Calls of the CNI plugin beside RDMA devices, on the lab kernel."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.lab.calls import conf
from tests.lab.nics import FIRMWARE, LASTING, Nic
from tests.support.offers import IN_THE_LAB

Lab = Callable[..., "subprocess.CompletedProcess[str]"]


FIRST = {"pf": "eth0", "vf": 0, "pci": "0000:3b:01.0", "link": "ethernet", "network": "default"}


SECOND = {"pf": "eth0", "vf": 1, "pci": "0000:3b:01.1", "link": "ethernet", "network": "other", "name": "rdma7"}


CONF = conf.WITH_ADDRESSES | {"networks": {"other": {"ipam": conf.host_local("10.10.0.0/24")}}}


PREPARE = f"""
set -e
ip link set lo up; ip link set ${{pf:=eth0}} up; ip link set wire0 up
functions=/sys/bus/pci/devices
echo 4 >$functions/0000:3b:00.0/sriov_numvfs
if type as_init_leaves_them >/dev/null; then as_init_leaves_them 0 1; fi
# mlx5 makes the RDMA devices itself.
for vf in 0 1; do
  netdev=$(ls $functions/0000:3b:01.$vf/net 2>/dev/null || true)
  [ -e $functions/0000:3b:01.$vf/infiniband ] || rdma link add rx$vf type rxe netdev $netdev
done
rdma0=$(ls $functions/0000:3b:01.0/infiniband) rdma1=$(ls $functions/0000:3b:01.1/infiniband)
verbs={Path(__file__).parents[1] / "inside/verbs_process.py"}
export CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni
{IN_THE_LAB}
mkdir -p /var/lib/mooring/pods
{FIRMWARE}
# What must be as before. A rebound driver makes a netdev with another index, and another MAC of its own.
state() {{
  ip -d -j link show | jq -c '{LASTING} | map({{ifname, address, mtu, flags, altnames, vfinfo_list, parentdev}})'
  rdma -j dev show | jq -c 'map(.ifname) | sort'
  firmware
  ls /var/lib/mooring/vfs /run/ipam/net 2>/dev/null | grep -E '^[0-9]' || true
}}
# call COMMAND POD: the sandbox, its namespace and the pod's uid all have the pod's name
call() {{
  CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_NETNS=/run/netns/$2 \\
  CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=$2;K8S_POD_UID=$2" \\
  {sys.executable} -m cni <${{conf:-/tmp/conf.json}} >/tmp/answer 2>/tmp/log && status=0 || status=$?
  compare_firmware $1
}}
add() {{ call ADD ${{1:-pod}}; echo add $status $(jq -c .code /tmp/answer); }}
del() {{ call DEL ${{1:-pod}}; echo del $status; }}
same() {{
  state >/tmp/now
  cmp -s /tmp/before /tmp/now && echo same || {{ echo different; diff /tmp/before /tmp/now || cat /tmp/log; }}
}}
# The RDMA devices of both VFs, under the names that they have on the plain NIC.
devices() {{
  echo $1 $($2 rdma -j dev show | jq -c --arg first $rdma0 --arg second $rdma1 \\
    'map({{($first): "rx0", ($second): "rx1"}}[.ifname] // empty) | sort')
}}
are_home() {{ [ "$(devices host)" = 'host ["rx0","rx1"]' ]; }}
inside() {{ ip netns exec pod "$@"; }}
names() {{ ip -j link show | jq -c 'map(.ifname) | sort'; }}
same_names() {{ names >/tmp/now; cmp -s /tmp/names /tmp/now && echo same names || cat /tmp/names /tmp/now; }}
until_true() {{ for turn in $(seq 1800); do "$@" && return; sleep 0.05; done; echo "never: $*"; exit 1; }}
rebound() {{ grep -cE 'driver is rebound|rebinding its driver' /tmp/log || true; }}
phase() {{ echo $(jq -r .phase /var/lib/mooring/vfs/0000:3b:01.0.json 2>/dev/null || echo none); }}
"""


def record(uid: str, *vfs: dict[str, Any]) -> str:
    """Return the commands that write what the CRI shim would have written, and make the pod's namespace."""
    document = {"v": 1, "pod": f"ns/{uid}", "assignment": {"v": 1, "uid": uid, "node": "n1", "vfs": vfs}}
    return f"echo '{json.dumps(document)}' >/var/lib/mooring/pods/{uid}.json; ip netns add {uid}\n"


def second(nic: Nic) -> dict[str, Any]:
    return nic.vf(1, network="other", name="rdma7")


def run(
    lab: Lab,
    script: str,
    *vfs: dict[str, Any],
    mode: str = "shared",
    conf: dict[str, Any] | None = None,
    options: Sequence[str] = (),
    timeout_s: float = 280,
) -> list[str]:
    written = f"echo '{json.dumps(CONF | (conf or {}))}' >/tmp/conf.json\n"
    before = f"rdma system set netns {mode}\n{written}{record('pod', *vfs)}"
    done = lab(PREPARE + before + "prepared; names >/tmp/names\n" + script, *options, timeout_s=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
