"""All or nothing, on a simulated host: ADD and DEL broken where they leave the process."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cni.loops.fault_report import assert_nothing_is_left
from tests.support.seeds import Part

pytestmark = pytest.mark.root

LOOP = Path(__file__).parent / "loops/fault_loop.py"
# A simulated host has no RDMA; every other call that leaves the process is broken.
KINDS = frozenset(
    {
        "cni.kernel.rtnetlink.exchange",
        "cni.kernel.netns.enter",
        "subprocess.Popen",
        "vf_settings",
        "fcntl.flock",
        "os.fsync",
    }
)
THREE = (
    {"pf": "enp4s0f0", "vf": 1, "pci": "0000:04:00.3", "min_tx_rate": 15000, "max_tx_rate": 20000, "vlan": 7},
    {"pf": "enp4s0f1", "vf": 0, "pci": "0000:04:00.6", "name": "rdma7", "mac": "02:00:00:00:00:77"},
    {"pf": "enp4s0f0", "vf": 2, "pci": "0000:04:00.4"},
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", ["ADD", "DEL"])
@pytest.mark.slow
def test_a_call_broken_anywhere_leaves_nothing(host: Any, tmp_path: Path, part: Part, command: str) -> None:
    """An error and a kill at system calls of each kind, with three VFs; what follows puts everything right.

    The lab breaks them on real VFs.
    """
    host.record(*THREE)
    path = tmp_path / "setting.json"
    setting = {
        "command": command,
        "part": part.document(),
        "environment": {**host.environment(command), "CNI_PATH": "/usr/lib/cni"},
        "conf": host.conf(),
        "vf_table": str(host.layout.vftable),
        "ledger": str(host.layout.state / "vfs"),
        "ipam": str(host.layout.ipam),
    }
    path.write_text(json.dumps(setting))
    done = host.enter(sys.executable, str(LOOP), str(path), timeout_s=890)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert_nothing_is_left(part, [report], KINDS)
