"""The switch's mode by devlink on the lab kernel: netdevsim reports it, with and without the right to read it."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.lab

Lab = Callable[..., "subprocess.CompletedProcess[str]"]
ASK = (
    "import json; from advertiser.host.devlink import eswitch_modes;"
    " print(json.dumps(eswitch_modes(['netdevsim1', 'netdevsim2', 'netdevsim9'], 'netdevsim')))"
)
ASKED = f'{sys.executable} -c "{ASK}"'
# CAP_NET_ADMIN, which ESWITCH_GET requires, and nothing else is taken away: files here are root's.
UNPRIVILEGED = "setpriv --bounding-set -net_admin"
TWO_SWITCHES = """
set -e
for number in 1 2; do
  echo "$number 1" >/sys/bus/netdevsim/new_device
  echo 2 >/sys/bus/netdevsim/devices/netdevsim$number/sriov_numvfs
done
switchdev() { devlink dev eswitch set netdevsim/netdevsim$1 mode switchdev; }
"""


def modes(lab: Lab, script: str) -> list[dict[str, str]]:
    done = lab(TWO_SWITCHES + script)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_devlink_tells_each_switchs_mode(lab: Lab) -> None:
    """Two switches are read in either mode; a device that is not there has none."""
    before, after, back = modes(
        lab,
        f"""
        {ASKED}; switchdev 2; {ASKED}
        devlink dev eswitch set netdevsim/netdevsim2 mode legacy; {ASKED}
        """,
    )
    assert before == back == {"netdevsim1": "legacy", "netdevsim2": "legacy"}
    assert after == {"netdevsim1": "legacy", "netdevsim2": "switchdev"}


def test_without_net_admin_a_vfs_port_tells_switchdev_mode(lab: Lab) -> None:
    """The kernel refuses ESWITCH_GET (EPERM): the ports show switchdev mode, and legacy stays unknown."""
    before, after, without_vfs = modes(
        lab,
        f"""
        {UNPRIVILEGED} devlink dev eswitch show netdevsim/netdevsim1 2>&1 | grep -q 'not permitted'
        {UNPRIVILEGED} {ASKED}; switchdev 2; {UNPRIVILEGED} {ASKED}
        echo 0 >/sys/bus/netdevsim/devices/netdevsim2/sriov_numvfs; {UNPRIVILEGED} {ASKED}
        """,
    )
    assert before == {}
    assert after == {"netdevsim2": "switchdev"}
    assert without_vfs == {}
