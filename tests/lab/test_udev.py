"""A real udevd renames netdevs and RDMA devices in the middle of ADD and DEL, on the lab kernel."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.node.plan import texts
from cli.node.plan.states import File, Host
from tests.lab.inside.udev_loop import UDEVD
from tests.lab.nics import ETHERNET, INFINIBAND, SIMVF, Lab, Nic, with_nic
from tests.support.offers import IN_THE_LAB
from tests.support.seeds import Part

pytestmark = [pytest.mark.lab, pytest.mark.udev]

# udevd names a function by its number where the card has others.
_INFINIBAND = replace(INFINIBAND, kernel="mlx5chip.npf=2 mlx5chip.ib=1")
ON_EACH = pytest.mark.parametrize(
    "nic", [*ETHERNET, pytest.param(_INFINIBAND, id="infiniband", marks=pytest.mark.other_nic)]
)
VF0 = {"pf": "eth0", "vf": 0, "pci": "0000:3b:01.0", "network": "default"}
VF1 = VF0 | {"vf": 1, "pci": "0000:3b:01.1", "name": "rdma7"}
# Another GUID takes effect when the driver is bound again: by ADD, and by DEL.
REBOUND = (
    VF0 | {"link": "infiniband", "guid": "02:00:00:00:00:00:00:99"},
    VF1 | {"link": "infiniband", "guid": "02:00:00:00:00:00:00:98"},
)
WITH_RDMA = (VF0 | {"link": "ethernet"}, VF1 | {"link": "ethernet", "mac": "02:00:00:00:00:77"})
# On mlx5 an ADD binds an Ethernet VF again that has no node GUID, whatever the pod requests.
VFS: dict[str, dict[str, Any]] = {
    "simvf": {"shared": REBOUND, "exclusive": WITH_RDMA},
    "mlx5": {"shared": WITH_RDMA, "exclusive": WITH_RDMA},
    "infiniband": {mode: tuple(vf | {"pf": "ib0"} for vf in REBOUND) for mode in ("shared", "exclusive")},
}
PREPARE = f"""
set -e
ip link set lo up; ip link set ${{pf:-eth0}} up; ip link set wire0 up
{IN_THE_LAB}
mkdir -p /var/lib/mooring/pods
"""


def prepare(mode: str, nic: str = "simvf") -> str:
    record = {"v": 1, "pod": "ns/p", "assignment": {"v": 1, "uid": "pod", "node": "n1", "vfs": VFS[nic][mode]}}
    return f"""{PREPARE}rdma system set netns {mode}; ip netns add pod
echo '{json.dumps(record)}' >/var/lib/mooring/pods/pod.json
"""


def setting(part: Part, mode: str, nic: str = "simvf") -> dict[str, Any]:
    return {
        "part": part.document(),
        "nic": nic,
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


def report_of(output: str) -> dict[str, Any]:
    """Return the report of a loop; the console that it came by holds the failures' reasons too."""
    report: dict[str, Any] = json.loads(next(line for line in output.splitlines() if line.startswith('{"')))
    return report


@pytest.mark.timeout(1900)
@pytest.mark.parametrize("mode", ["shared", "exclusive"])
@ON_EACH
@pytest.mark.slow
def test_a_udevd_that_renames_later_breaks_nothing(lab: Lab, part: Part, nic: Nic, mode: str) -> None:
    """ADD and DEL succeed whenever the names change, and udevd's names are there in the end."""
    document = json.dumps(setting(part, mode, nic.name))
    script = f"""{prepare(mode, nic.name)}
cat >/tmp/setting.json <<'END'\n{document}\nEND
{sys.executable} -m tests.lab.inside.udev_loop /tmp/setting.json 2>/tmp/log || {{ tail -20 /tmp/log; exit 1; }}
grep -E '^(ADD|DEL)' /tmp/log >&2 || true
"""
    done = with_nic(lab, nic)(script, timeout_s=1800 if part.whole else 600)
    assert done.returncode == 0, done.stdout + done.stderr
    report = report_of(done.stdout)
    assert report["wrong"] == {}, f"repeat with --seed {part.seed}: {done.stdout}"
    renamed = ("net", "infiniband") if nic != SIMVF else ("net",) if mode == "shared" else ("infiniband",)
    assert all(report["events"][kind] >= 2 * report["turns"] for kind in renamed), report


# As in tests/cni/test_renames.py, with RDMA devices.
KINDS = frozenset(
    {
        *("cni.kernel.rtnetlink.exchange", "mooring.nic.rdma_netlink.exchange", "cni.kernel.netns.enter"),
        *("subprocess.Popen", "vf_settings"),
    }
)


@pytest.mark.timeout(3700)
@pytest.mark.parametrize("command", ["ADD", "DEL"])
@pytest.mark.slow
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
{sys.executable} -m tests.cni.loops.rename_loop /tmp/setting.json 2>/tmp/log || {{ tail -20 /tmp/log; exit 1; }}
grep -E '^(ADD|DEL)' /tmp/log >&2 || true
"""
    done = lab(script, timeout_s=3600 if part.whole else 900)
    assert done.returncode == 0, done.stdout + done.stderr
    report = report_of(done.stdout)
    assert report["left_behind"] == {}, f"repeat with --seed {part.seed}: {report} {done.stderr}"
    assert report["tried"].keys() >= KINDS, report


# By udev's default .link file and rdma-core's rules; and as the kernel names them.
LASTING_NAMES = {
    "simvf": "enp59s0f0v0 rocep59s0f0v0",
    "mlx5": "enp59s0f0v0 rocep59s0f0v0",
    "infiniband": "ibp59s0f0v0 ibp59s0f0v0",
}
KERNELS_NAMES = {"simvf": "eth2 rxvf", "mlx5": "eth2 mlx5_2", "infiniband": "ib1 mlx5_2"}


@pytest.mark.parametrize("spared", [True, False])
@ON_EACH
def test_vfs_keep_the_kernels_names_where_the_operator_wants_it(lab: Lab, nic: Nic, spared: bool) -> None:
    """The files of `mooring-node install --vf-names kernel`, beside the packaged rules: PFs are renamed as before.

    Also where the VF's driver is bound again, which recreates mlx5's netdev and RDMA device. Without the files VFs are
    renamed too.
    """
    packaged = Path("/usr/lib/udev/rules.d", texts.RDMA_RULES)
    host = Host({str(packaged): File(packaged.read_text())})
    files = dict([*texts.quiet(host), *texts.vf_names(host)]) if spared else {}
    # The lab's /etc is this machine's own; /run takes the place of /usr/lib too.
    places = {path.replace("/etc/", "/run/", 1): text for path, text in files.items() if path != texts.MODULES}
    written = "".join(
        f"mkdir -p {Path(path).parent}; cat >{path} <<'END'\n{text}END\n" for path, text in places.items()
    )
    script = f"""{PREPARE}{written}
{UDEVD} --daemon 2>/dev/null
functions=/sys/bus/pci/devices vf=0000:3b:01.0
names() {{ udevadm settle; echo $(ls $functions/$1/net) $(ls $functions/$1/infiniband); }}
echo 1 >$functions/0000:3b:00.0/sriov_numvfs; udevadm settle
if [ -e $functions/$vf/infiniband ]; then
  names $vf
  echo $vf >$functions/$vf/driver/unbind; echo $vf >/sys/bus/pci/drivers_probe
  # It appeared before udevd did.
  udevadm trigger --action add /sys/class/infiniband/mlx5_0
else
  rdma link add rxvf type rxe netdev $(ls $functions/$vf/net)
  names $vf
  rdma link add rxpf type rxe netdev eth0
fi
names $vf; names 0000:3b:00.0
"""
    done = with_nic(lab, nic)(script)
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = (KERNELS_NAMES if spared else LASTING_NAMES)[nic.name]
    of_pf = f"{nic.pf} {'ibp59s0f0' if nic.link == 'infiniband' else 'rocep59s0f0'}"
    assert done.stdout.splitlines() == [wanted, wanted, of_pf]
