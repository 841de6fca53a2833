"""Simulated hosts as a program: up, ready, through a reboot, and gone without a trace, also without being root."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from devcluster.hosts.layout import Layout
from devcluster.hosts.nic import load_host
from devcluster.hosts.vftable import ETHERNET, VfTable
from mooring.nic.settings import VfSettings
from tests.support.polling import wait_until

pytestmark = pytest.mark.root
NODES = tuple(f"test-{os.getpid()}-boot{index}" for index in (1, 2, 3))


def command(root: Path, verb: str, *nodes: str) -> list[str]:
    named = [word for node in nodes for word in ("--node", node)]
    return [sys.executable, "-m", "devcluster.hosts", verb, "--root", str(root), *named]


@pytest.fixture
def up(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(command(tmp_path, "up", *NODES))
    try:
        wait_until(lambda: all(Layout.at(tmp_path, node).description.exists() for node in NODES))
        yield process
    finally:
        process.terminate()
        process.wait()


def test_hosts_come_up_and_go_without_a_trace(tmp_path: Path) -> None:
    """Three hosts with 16 VFs each are ready; SIGTERM ends the program with 0 and takes the namespaces along."""
    process = subprocess.Popen(command(tmp_path, "up", *NODES))
    layouts = [Layout.at(tmp_path, node) for node in NODES]
    try:
        wait_until(lambda: all(layout.description.exists() for layout in layouts))
        assert load_host(layouts[2].description.read_text()).number == 3
    finally:
        process.terminate()
    assert process.wait() == 0
    assert [path for layout in layouts for path in (layout.netns, layout.description) if path.exists()] == []
    assert list(layouts[0].netns.parent.glob(f"mooring-{NODES[0]}*")) == []


@pytest.mark.usefixtures("up")
def test_a_host_has_devices_and_a_chain(tmp_path: Path) -> None:
    """Nodes have the numbers of sysfs; the conflist ends with mooring-cni, whose executable is there."""
    layout = Layout.at(tmp_path, NODES[1])
    node = layout.dev / "infiniband" / "uverbs17"
    told = (layout.sys / "class/infiniband_verbs/uverbs17/dev").read_text().strip()
    status = node.stat()
    assert stat.S_ISCHR(status.st_mode)
    assert f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}" == told
    plugins = json.loads((layout.cni_conf / "10-mooring.conflist").read_text())["plugins"]
    assert [plugin["type"] for plugin in plugins] == ["ptp", "mooring-cni"]
    assert plugins[1]["node"] == NODES[1]
    assert plugins[1]["ipam"]["ranges"][0][0]["rangeStart"] == "10.56.2.10"
    assert os.access(layout.cni_bin / "mooring-cni", os.X_OK)


@pytest.mark.usefixtures("up")
def test_a_second_program_for_the_same_node_is_refused(tmp_path: Path) -> None:
    """It ends with status 1, names the namespace, and the first one's host stays whole."""
    second = subprocess.run(command(tmp_path / "other", "up", NODES[2]), capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "end that first" in second.stderr
    links = subprocess.run(
        ["ip", "-n", f"mooring-{NODES[2]}", "link", "show"], capture_output=True, text=True, check=True
    )
    assert "enp4s0f1v7" in links.stdout


@pytest.mark.usefixtures("up")
def test_a_reboot_loses_what_a_boot_loses_and_keeps_the_disk(tmp_path: Path) -> None:
    """A VF in a pod is back on its host, rates and /run are gone, the ledger is there; other hosts are unaffected."""
    layout, other = (Layout.at(tmp_path, node) for node in NODES[:2])
    for host in (layout, other):
        VfTable(host.vftable).write("enp4s0f0", 1, VfSettings(max_tx_rate=100))
        (host.run / "ready").touch()
        (host.state / "kept.json").touch()
    pod = f"mooring-test-{os.getpid()}-pod"
    subprocess.run(["ip", "netns", "add", pod], check=True)
    try:
        subprocess.run(["ip", "-n", layout.netns.name, "link", "set", "enp4s0f0v1", "netns", pod], check=True)
        net = layout.sys / "bus/pci/devices/0000:04:00.3/net"
        wait_until(lambda: list(net.iterdir()) == [])
        subprocess.run(command(tmp_path, "reboot", NODES[0]), check=True)
        assert [path.name for path in net.iterdir()] == ["enp4s0f0v1"]
    finally:
        subprocess.run(["ip", "netns", "del", pod], check=True)
    assert VfTable(layout.vftable).read("enp4s0f0", 1) == replace(ETHERNET, mac="02:00:01:00:00:01")
    assert VfTable(other.vftable).read("enp4s0f0", 1).max_tx_rate == 100
    assert [(host.run / "ready").exists() for host in (layout, other)] == [False, True]
    assert (layout.state / "kept.json").exists()
    subprocess.run(["ip", "-n", layout.netns.name, "link", "set", "enp4s0f0v1", "name", "after"], check=True)
    wait_until(lambda: [path.name for path in net.iterdir()] == ["after"])


_TRIAL = '"$0" -c "import devcluster.hosts"'
# Runs inside a user namespace: hosts come up, a VF follows a rename, and comes back from a namespace that died.
_UNPRIVILEGED = """
set -eu
mount -t tmpfs -o ro none /run
"$PYTHON" -m devcluster.hosts up --root "$ROOT" --node u1 & hosts=$!
await() { n=0; until "$@"; do n=$((n+1)); [ $n -lt 1500 ]; sleep 0.02; done; }
await test -e "$ROOT/u1/host.json"
host="nsenter --net=$ROOT/netns/mooring-u1"
$host ip link set enp4s0f0v0 name first
await test -e "$ROOT/u1/sys/class/net/first"
unshare --net sleep 60 & pod=$!
await sh -c "[ \\$(readlink /proc/$pod/ns/net) != \\$(readlink /proc/self/ns/net) ]"
$host ip link set enp4s0f0v1 netns $pod
await test ! -e "$ROOT/u1/sys/class/net/enp4s0f0v1"
nsenter --net=/proc/$pod/ns/net ip link set enp4s0f0v1 name inpod
kill $pod
await test -e "$ROOT/u1/sys/class/net/inpod"
test -f "$ROOT/u1/dev/infiniband/uverbs0"
kill $hosts
wait $hosts
test ! -e "$ROOT/netns/mooring-u1"
echo held
"""


def test_hosts_work_in_a_user_namespace_without_root() -> None:
    """No root, no mknod, no /run/netns: namespaces lie below the root folder, and everything else is the same."""
    root = Path(tempfile.mkdtemp(prefix="mooring-test-"))
    namespace = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *namespace]
    trial = subprocess.run([*user, "sh", "-c", _TRIAL, sys.executable], capture_output=True, check=False)
    # A checkout or an interpreter that only root can read: root's own user namespace, which has no mknod either.
    prefix = user if trial.returncode == 0 else namespace
    try:
        root.chmod(0o777)
        environment = {"PATH": os.environ["PATH"], "PYTHON": sys.executable, "ROOT": str(root)}
        environment |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        done = subprocess.run(
            [*prefix, "sh", "-c", _UNPRIVILEGED],
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.stdout.endswith("held\n"), done.stderr
    finally:
        shutil.rmtree(root)


def test_a_killed_program_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    """After SIGKILL the namespaces remain, and the next start with the same names replaces them."""
    layout = Layout.at(tmp_path, NODES[0])
    for end in (signal.SIGKILL, signal.SIGTERM):
        layout.description.unlink(missing_ok=True)
        process = subprocess.Popen(command(tmp_path, "up", NODES[0]))
        wait_until(layout.description.exists)
        process.send_signal(end)
        process.wait()
    assert not layout.netns.exists()
