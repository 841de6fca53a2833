"""The images that the Containerfile makes: what is in them, and the programs running from them in containers."""

import json
import socket
import stat
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from devcluster.images.containerfile import Stage, instructions
from devcluster.processes import Processes
from tests.images.conftest import CONTAINERFILE, TARGETS, Engine
from tests.support.polling import wait_until

# The images are made once, within the first test: half a minute on a quiet machine.
pytestmark = [pytest.mark.containerd, pytest.mark.timeout(400)]
_COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "ld", "as", "make", "rustc", "cargo")


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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
    port, there = _free_port(), Path("/etc/kubeconfig")
    flags = (f"--kubeconfig={there}", f"--metrics-addr=127.0.0.1:{port}")
    container = engine.start("scheduler", flags, {kubeconfig: there})
    wait_until(lambda: engine.exit_code(container) is not None or _answer(port, "/healthz") == (200, "ok"))
    wait_until(lambda: engine.exit_code(container) is not None or _answer(port, "/readyz")[0] == 200)
    assert engine.exit_code(container) is None, engine.log("scheduler")
    assert engine.python(container, "import os; print(os.getuid(), os.getgid())") == "65532 65532"
    assert "Read-only file system" in engine.python(container, "open('/tmp/x', 'w')")
    shown = engine.python(container, "print([line for line in open('/proc/self/status') if line.startswith('CapBnd')])")
    assert "0000000000000000" in shown


def test_the_advertiser_publishes_its_node_from_the_image(engine: Engine, kubeconfig: Path) -> None:
    """`once` as root, without capabilities: the node has the inventory of the host's (here empty) sysfs."""
    server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    body, kind = json.dumps(node).encode(), {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{server}/api/v1/nodes", body, kind), timeout=60).close()
    there = Path("/etc/kubeconfig")
    flags = ("once", f"--kubeconfig={there}", "--node-name=n1")
    container = engine.start("advertiser", flags, {kubeconfig: there})
    wait_until(lambda: engine.exit_code(container) is not None)
    assert engine.exit_code(container) == 0, engine.log("advertiser")
    with urllib.request.urlopen(f"{server}/api/v1/nodes/n1", timeout=60) as response:
        inventory = json.load(response)["metadata"]["annotations"]["mooring.dev/inventory"]
    assert json.loads(inventory)["v"] == 1


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_has_no_compiler_and_no_wheel_and_nothing_of_other_programs(
    stages: Mapping[str, Stage], target: str
) -> None:
    """Build tools stay in the earlier stages; other programs' dependencies are not in the image."""
    root = stages[target].root
    files = {path.name for path in root.rglob("*") if not path.is_dir()}
    assert files.isdisjoint(_COMPILERS)
    assert not (root / "wheelhouse").exists()
    packages = {path.name for path in (root / "opt/mooring/lib").glob("python3*/site-packages/*")}
    assert ("numpy" in packages, "pyroute2" in packages) == (target == "scheduler", target == "advertiser")
    assert packages.isdisjoint({"pip", "grpc", "pytest"})


def test_only_the_advertiser_is_root(stages: Mapping[str, Stage]) -> None:
    """A kubelet that must not run root refuses one and recognises the other by its number; no file is set-uid."""
    assert {target: stages[target].user for target in TARGETS} == {"scheduler": "65532:65532", "advertiser": "0:0"}
    for target in TARGETS:
        modes = [path.lstat().st_mode for path in (stages[target].root / "opt").rglob("*") if not path.is_symlink()]
        assert [mode for mode in modes if mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH)] == []


def test_every_stage_is_from_one_base_image() -> None:
    """The final stages copy only from stages of the same file."""
    bases = [rest.split()[0] for word, rest in instructions(CONTAINERFILE.read_text()) if word == "FROM"]
    assert set(bases) == {"${PYTHON}", "wheels"}
