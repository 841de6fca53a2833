"""The images of a release, imported by containerd: their programs run as the manifests run them."""

import json
import secrets
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from devcluster.processes import Processes, free_ports
from tests.images.conftest import Engine
from tests.support.polling import wait_until

# The release is made once, within the first test: half a minute on a quiet machine.
pytestmark = [pytest.mark.containerd, pytest.mark.wheels, pytest.mark.timeout(500)]


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An API server on loopback; its kubeconfig is readable by all users."""
    folder = tmp_path_factory.mktemp("apiserver")
    processes = Processes(folder)
    file = folder / "kubeconfig"
    processes.start("apiserver", [sys.executable, "-m", "devcluster.apiserver", "--kubeconfig", str(file)])
    try:
        processes.await_ready("apiserver", file.exists)
        file.chmod(0o644)
        yield file
    finally:
        processes.stop()


def _answer(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
            return response.status, response.read().decode()
    except OSError as refused:
        return 0, str(refused)


def test_the_scheduler_runs_without_root_on_a_read_only_root(engine: Engine, kubeconfig: Path) -> None:
    """It runs as the Deployment runs it: not root, no capability, nothing writable.

    It answers, leads and becomes ready.
    """
    (port,), there = free_ports(1), Path("/etc/kubeconfig")
    flags = (f"--kubeconfig={there}", f"--metrics-addr=127.0.0.1:{port}")
    container = engine.start("mooring-scheduler", flags, {kubeconfig: there})
    wait_until(lambda: engine.exit_code(container) is not None or _answer(port, "/healthz") == (200, "ok"))
    wait_until(lambda: engine.exit_code(container) is not None or _answer(port, "/readyz")[0] == 200)
    assert engine.exit_code(container) is None, engine.log("mooring-scheduler")
    assert engine.python(container, "import os; print(os.getuid(), os.getgid())") == "65532 65532"
    assert "Read-only file system" in engine.python(container, "open('/tmp/x', 'w')")
    count = "import ssl; print(len(ssl.create_default_context().get_ca_certs()) > 100)"
    assert engine.python(container, count) == "True"
    shown = engine.python(container, "print([line for line in open('/proc/self/status') if line.startswith('CapBnd')])")
    assert "0000000000000000" in shown


def test_the_advertiser_publishes_its_node_from_the_image(engine: Engine, kubeconfig: Path) -> None:
    """`once` as root, without capabilities: the node has the inventory of the host's (here empty) sysfs."""
    server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    name = f"n-{secrets.token_hex(3)}"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    body, kind = json.dumps(node).encode(), {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{server}/api/v1/nodes", body, kind), timeout=60).close()
    there = Path("/etc/kubeconfig")
    flags = ("once", f"--kubeconfig={there}", f"--node-name={name}")
    container = engine.start("mooring-advertiser", flags, {kubeconfig: there})
    wait_until(lambda: engine.exit_code(container) is not None)
    assert engine.exit_code(container) == 0, engine.log("mooring-advertiser")
    with urllib.request.urlopen(f"{server}/api/v1/nodes/{name}", timeout=60) as response:
        inventory = json.load(response)["metadata"]["annotations"]["mooring.dev/inventory"]
    assert json.loads(inventory)["v"] == 1


def test_the_node_installer_starts_from_the_image(engine: Engine) -> None:
    """Its program prints its version; the node runtime lies beside it."""
    container = engine.start("mooring-node-installer", ["--version"])
    wait_until(lambda: engine.exit_code(container) is not None)
    assert engine.exit_code(container) == 0, engine.log("mooring-node-installer")
    assert "mooring-node" in engine.log("mooring-node-installer")
