"""Calls of the CNI plugin on the plain NIC of the lab."""

import json
import sys

from tests.lab.calls.conf import ENVIRONMENT
from tests.lab.calls.conf import WITH_ADDRESSES as CONF
from tests.lab.nics import FIRMWARE, LASTING, Lab, Nic, with_nic
from tests.support.offers import IN_THE_LAB

PREPARE = f"""
set -e
ip link set eth0 up; ip link set wire0 up
echo 4 >/sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs
as_init_leaves_them 0 1 2 3
ip netns add pod
{IN_THE_LAB}
{FIRMWARE}
mkdir -p /var/lib/mooring/pods
cat >/tmp/conf.json <<'END'
{json.dumps(CONF)}
END
{"".join(f"export {name}='{value}'" + chr(10) for name, value in ENVIRONMENT.items())}
state() {{
  ip -d -j link show | jq -c '{LASTING}'
  ls /var/lib/mooring/vfs /run/ipam/net 2>/dev/null | grep -E '^[0-9]' || true
}}
call() {{
  CNI_COMMAND=$1 {sys.executable} -m cni </tmp/conf.json >/tmp/answer 2>/tmp/log && status=0 || status=$?
  compare_firmware $1
}}
same() {{
  state >/tmp/now
  cmp -s /tmp/before /tmp/now && echo "same $1" || {{ echo "different $1"; diff /tmp/before /tmp/now; }}
}}
prepared
"""


def run(lab: Lab, nic: Nic, script: str, *options: str, timeout_s: float = 280) -> list[str]:
    vfs = [nic.vf(0, **nic.wishes), nic.vf(1, name="rdma7")]
    record = {"v": 1, "pod": "ns/p", "assignment": {"v": 1, "uid": "u1", "node": "n1", "vfs": vfs}}
    written = f"echo '{json.dumps(record)}' >/var/lib/mooring/pods/u1.json\n"
    done = with_nic(lab, nic)(PREPARE + written + script, *options, timeout_s=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
