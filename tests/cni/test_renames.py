"""Netdevs that are renamed between any two calls, on a simulated host: ADD and DEL end right and leave nothing."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.seeds import Part

pytestmark = pytest.mark.root

ROOT = Path(__file__).parent.parent.parent
# A simulated host has no RDMA; the lab renames RDMA devices too.
KINDS = frozenset({"cni.kernel.rtnetlink.exchange", "cni.kernel.netns.enter", "subprocess.Popen", "vf_settings"})
NETDEVS = ["enp4s0f0v1", "enp4s0f1v0"]
TWO = (
    {"pf": "enp4s0f0", "vf": 1, "pci": "0000:04:00.3", "min_tx_rate": 15000, "max_tx_rate": 20000, "vlan": 7},
    {"pf": "enp4s0f1", "vf": 0, "pci": "0000:04:00.6", "name": "rdma7", "mac": "02:00:00:00:00:77"},
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_a_netdev_that_is_renamed_before_any_call_hinders_none(
    host: Any, tmp_path: Path, part: Part, command: str
) -> None:
    """udev does that some milliseconds after a netdev appears; systemd-udevd takes the index (rtnl_set_link_name)."""
    host.record(*TWO)
    path = tmp_path / "setting.json"
    setting = {
        "command": command,
        "part": part.document(),
        "environment": {**host.environment(command), "CNI_PATH": "/usr/lib/cni"},
        "conf": host.conf(),
        "vf_table": str(host.layout.vftable),
        "ledger": str(host.layout.state / "vfs"),
        "ipam": str(host.layout.ipam),
        "netdevs": NETDEVS,
        "given": ["net1", "rdma7"],
    }
    path.write_text(json.dumps(setting))
    done = host.enter(sys.executable, "-m", "tests.cni.loops.rename_loop", str(path), timeout_s=890, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["left_behind"] == {}, f"repeat with --seed {part.seed}: {report}\n{done.stderr}"
    assert report["tried"].keys() >= KINDS, report
