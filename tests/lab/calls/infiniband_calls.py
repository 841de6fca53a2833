"""Calls of the CNI plugin on the lab's InfiniBand NIC."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lab.calls import conf
from tests.lab.nics import FIRMWARE, INFINIBAND
from tests.support.offers import in_the_lab

Lab = Callable[..., "subprocess.CompletedProcess[str]"]


PF, FIRST_VF, SECOND_VF = "0000:3b:00.0", "0000:3b:01.0", "0000:3b:01.1"


FIRST = {"pf": "ib0", "vf": 0, "pci": FIRST_VF, "link": "infiniband", "network": "default"}


KERNEL = str(INFINIBAND.kernel)


CONF = conf.WITH_ADDRESSES | {"policyRouting": False}


# VFs are made without GUIDs here, and stay so: `IN_THE_LAB` has ADD give them one.
# `state` is what must be as before, `links` what a user reads of the VFs. IPoIB's address starts with the number of a
# queue pair (ipoib_dev_init_default), another one whenever the netdev is made again.
PREPARE = f"""
set -e
functions=/sys/bus/pci/devices parameters=/sys/module/mlx5chip/parameters
verbs={Path(__file__).parents[1] / "inside/verbs_process.py"}
export CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni
{in_the_lab(repair_node_guid=False)}
{FIRMWARE}
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
is_same() {{ state >/tmp/now; cmp -s /tmp/before /tmp/now; }}
same() {{
  is_same && echo same || {{ echo different; cat /tmp/before /tmp/now /tmp/log; }}
}}
call() {{
  CNI_COMMAND=$1 CNI_CONTAINERID=pod CNI_NETNS=/run/netns/pod \\
  CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;K8S_POD_UID=pod" \\
  {sys.executable} -m cni </tmp/conf.json >/tmp/answer 2>/tmp/log && status=0 || status=$?
  compare_firmware $1
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
