"""Calls of the CNI plugin on the lab kernel as a runtime makes them: the two VFs, the configuration, the script."""

import json
import sys
from typing import Any

from tests.lab.calls import conf
from tests.lab.nics import FIRMWARE, LASTING, Lab, Nic
from tests.support.offers import IN_THE_LAB

PYTHON = sys.executable
_FIRST_WISHES: dict[str, dict[str, Any]] = {
    "ethernet": {
        "min_tx_rate": 100,
        "max_tx_rate": 2000,
        "vlan": 7,
        "trust": True,
        "mac": "02:00:00:00:00:99",
    },
    "infiniband": {"guid": "02:00:00:00:00:00:00:99", "link_state": "enable"},
}


def first(nic: Nic) -> dict[str, Any]:
    """Return VF 0 as a pod record has it, with what its driver takes of a pod's wishes."""
    return nic.vf(0, network="rail0", **_FIRST_WISHES[nic.link])


def second(nic: Nic) -> dict[str, Any]:
    """Return VF 1 as a pod record has it, of another network and under a name of the pod's choice."""
    return nic.vf(1, network="rail1", name="rdma7")


CONF = conf.WITH_ADDRESSES | {"holdTimeoutSeconds": 20}


def record(uid: str, *vfs: dict[str, Any]) -> str:
    """Return the commands that write what the CRI shim would have written."""
    assignment = {"v": 1, "uid": uid, "node": "n1", "vfs": vfs}
    text = json.dumps({"v": 1, "pod": f"ns/{uid}", "assignment": assignment})
    return f"mkdir -p /var/lib/mooring/pods; cat >/var/lib/mooring/pods/{uid}.json <<'END'\n{text}\nEND\n"


# call COMMAND POD [jq program that changes the configuration]: POD is uid, container and namespace at once.
PREPARE = f"""
set -e
ip link set $pf up; ip link set wire0 up
echo 4 >/sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs
as_init_leaves_them 0 1 2 3
{IN_THE_LAB}
{FIRMWARE}
cat >/tmp/conf.json <<'END'
{json.dumps(CONF)}
END
export CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni PATH
plugin="{PYTHON} -m cni"
call() {{
  jq -c "${{3:-.}}" /tmp/conf.json | env CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_NETNS="${{NETNS-/run/netns/$2}}" \\
    CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=$2;K8S_POD_UID=$2" \\
    $plugin >/tmp/answer-$2 2>/tmp/log-$2 && status=0 || status=$?
  compare_firmware $1
}}
ask() {{ call "$@"; echo $status; }}
# check POD: hand the last answer on as the chain's result, as a runtime does.
check() {{ jq -c --slurpfile r /tmp/result-$1 '.prevResult=$r[0]' /tmp/conf.json >/tmp/c; mv /tmp/conf.json /tmp/k
  mv /tmp/c /tmp/conf.json; call CHECK $1; mv /tmp/k /tmp/conf.json; echo $status
  jq -r '.details // empty' /tmp/answer-$1; }}
# netdev VF: its name on the host. address POD: the MAC or the GUID of its first interface.
netdev() {{ ls /sys/bus/pci/devices/0000:3b:01.$1/net; }}
address() {{ ip -n $1 -j link show net1 | jq -r '.[0].address | if length > 17 then .[36:] else . end'; }}
state() {{
  ip -d -j link show | jq -c '{LASTING}'
  ls /var/lib/mooring/vfs /run/ipam/net 2>/dev/null | grep -E '^[0-9]' || true
}}
same() {{
  state >/tmp/now
  cmp -s /tmp/before /tmp/now && echo "same $1" || {{ echo "different $1"; diff /tmp/before /tmp/now; }}
}}
prepared
"""


def run(lab: Lab, script: str, *options: str) -> list[str]:
    done = lab(PREPARE + script, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
