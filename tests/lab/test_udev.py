"""A real udevd renames netdevs and RDMA devices in the middle of ADD and DEL, on the lab kernel."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.node.plan import texts
from cli.node.plan.states import File, Host
from tests.lab.udev_loop import UDEVD
from tests.support.offers import IN_THE_LAB
from tests.support.seeds import Part

pytestmark = [pytest.mark.lab, pytest.mark.udev]

Lab = Callable[..., "subprocess.CompletedProcess[str]"]
VF0 = {"pf": "eth0", "vf": 0, "pci": "0000:3b:01.0", "network": "default"}
VF1 = VF0 | {"vf": 1, "pci": "0000:3b:01.1", "name": "rdma7"}
# Another GUID takes effect when the driver is bound again: by ADD, and by DEL.
REBOUND = (
    VF0 | {"link": "infiniband", "guid": "02:00:00:00:00:00:00:99"},
    VF1 | {"link": "infiniband", "guid": "02:00:00:00:00:00:00:98"},
)
WITH_RDMA = (VF0 | {"link": "ethernet"}, VF1 | {"link": "ethernet", "mac": "02:00:00:00:00:77"})
VFS = {"shared": REBOUND, "exclusive": WITH_RDMA}
PREPARE = f"""
set -e
ip link set lo up; ip link set eth0 up; ip link set wire0 up
{IN_THE_LAB}
mkdir -p /var/lib/mooring/pods
"""


def prepare(mode: str) -> str:
    record = {"v": 1, "pod": "ns/p", "assignment": {"v": 1, "uid": "pod", "node": "n1", "vfs": VFS[mode]}}
    return f"""{PREPARE}rdma system set netns {mode}; ip netns add pod
echo '{json.dumps(record)}' >/var/lib/mooring/pods/pod.json
"""


def setting(part: Part, mode: str) -> dict[str, Any]:
    return {
        "part": part.document(),
        "mode": mode,
        "given": {"net1": "0000:3b:01.0", "rdma7": "0000:3b:01.1"},
        "environment": {
            "CNI_CONTAINERID": "pod",
            "CNI_NETNS": "/run/netns/pod",
            "CNI_IFNAME": "eth0",
            "CNI_PATH": "/usr/lib/cni",
            "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAME=p;K8S_POD_UID=pod",
        },
        "conf": {
            "cniVersion": "1.0.0",
            "name": "net",
            "type": "mooring-cni",
            "node": "n1",
            "prevResult": {"cniVersion": "1.0.0", "interfaces": [], "ips": []},
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]], "dataDir": "/run/ipam"},
        },
        "ledger": "/var/lib/mooring/vfs",
        "ipam": "/run/ipam",
    }


@pytest.mark.timeout(1900)
@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_a_udevd_that_renames_later_breaks_nothing(lab: Lab, part: Part, mode: str) -> None:
    """ADD and DEL succeed whenever the names change, and udevd's names are there in the end."""
    document = json.dumps(setting(part, mode))
    script = f"""{prepare(mode)}
cat >/tmp/setting.json <<'END'\n{document}\nEND
{sys.executable} -m tests.lab.udev_loop /tmp/setting.json 2>/tmp/log || {{ tail -20 /tmp/log; exit 1; }}
grep -E '^(ADD|DEL)' /tmp/log >&2 || true
"""
    done = lab(script, timeout_s=1800 if part.whole else 600)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["wrong"] == {}, f"repeat with --seed {part.seed}: {done.stdout}"
    kind = "net" if mode == "shared" else "infiniband"
    assert report["events"][kind] >= 2 * report["turns"], report


# As in tests/cni/test_renames.py, with RDMA devices.
KINDS = frozenset(
    {
        *("cni.kernel.rtnetlink.exchange", "mooring.rdma_netlink.exchange", "cni.kernel.netns.enter"),
        *("subprocess.run", "vf_settings"),
    }
)


@pytest.mark.timeout(3700)
@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_devices_that_are_renamed_before_any_call_hinder_none(lab: Lab, part: Part, command: str) -> None:
    """Netdevs and RDMA devices, in exclusive mode: the call ends right, and so does the DEL after it."""
    document = {
        **setting(part, "exclusive"),
        "command": command,
        "vf_table": None,
        "netdevs": ["eth2", "eth3"],
        "given": ["net1", "rdma7"],
    }
    script = f"""{prepare("exclusive")}
echo 2 >/sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs
for vf in 0 1; do rdma link add rx$vf type rxe netdev eth$((vf + 2)); done
cat >/tmp/setting.json <<'END'\n{json.dumps(document)}\nEND
{sys.executable} -m tests.cni.rename_loop /tmp/setting.json 2>/tmp/log || {{ tail -20 /tmp/log; exit 1; }}
grep -E '^(ADD|DEL)' /tmp/log >&2 || true
"""
    done = lab(script, timeout_s=3600 if part.whole else 900)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["left_behind"] == {}, f"repeat with --seed {part.seed}: {report} {done.stderr}"
    assert report["tried"].keys() >= KINDS, report


def test_vfs_keep_the_kernels_names_where_the_operator_wants_it(lab: Lab) -> None:
    """The files of `mooring-node install --vf-names kernel`, beside the packaged rules: PFs are renamed as before."""
    packaged = Path("/usr/lib/udev/rules.d", texts.RDMA_RULES)
    host = Host({str(packaged): File(packaged.read_text())})
    files = dict([*texts.quiet(host), *texts.vf_names(host)])
    # The lab's /etc is this machine's own; /run takes the place of /usr/lib too.
    places = {path.replace("/etc/", "/run/", 1): text for path, text in files.items() if path != texts.MODULES}
    written = "".join(
        f"mkdir -p {Path(path).parent}; cat >{path} <<'END'\n{text}END\n" for path, text in places.items()
    )
    script = f"""{PREPARE}{written}
{UDEVD} --daemon 2>/dev/null
functions=/sys/bus/pci/devices
echo 1 >$functions/0000:3b:00.0/sriov_numvfs; udevadm settle
rdma link add rxvf type rxe netdev $(ls $functions/0000:3b:01.0/net)
rdma link add rxpf type rxe netdev eth0
echo $(ls $functions/0000:3b:01.0/net); udevadm settle; echo $(rdma -j dev show | jq -r '.[].ifname' | sort)
"""
    done = lab(script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["eth2", "rocep59s0f0 rxvf"]
