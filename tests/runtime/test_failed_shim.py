"""A shim that fails before containerd, and a kubelet that keeps its connections: past the shim, and back.

The kubelet is this process, by its name. Its one channel is never made anew: that kubelet is not restarted.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri

from tests.support.polling import wait_until

pytestmark = [pytest.mark.containerd, pytest.mark.timeout(600)]
_COMM = Path("/proc/self/comm")


@pytest.fixture(autouse=True)
def kubelet_by_name() -> Iterator[None]:
    before = _COMM.read_text().strip()
    _COMM.write_text("kubelet")
    yield
    _COMM.write_text(before)


@pytest.fixture(autouse=True)
def nothing_is_left(node: Any) -> Iterator[None]:
    """After every test the host is as it was before it, and the shim serves."""
    before = node.at_rest()
    node.start_bypass()
    log = node.processes.logs / "bypass.log"
    node.processes.await_ready("bypass", lambda: "watching the shim" in log.read_text())
    yield
    node.processes.kill("bypass", signal.SIGTERM)
    log.unlink()
    node.remove_pods()
    wait_until(lambda: node.held() == {} and node.at_rest() == before)


def test_a_shim_that_exits_at_start_costs_plain_pods_nothing(node: Any, client: Any) -> None:
    """Pods with VFs are refused, what restarts in their sandboxes is found; the kubelet comes back with the shim."""
    held, refused = node.pod(node.functions[0]), node.pod(node.functions[1])
    sandbox = client.run(held)
    kept = client.started(held, sandbox, "kept")
    command = node.processes.command("shim")
    node.processes.kill("shim")
    failed_s = time.monotonic()
    node.processes.start("shim", [sys.executable, "-c", "raise SystemExit(1)"])
    wait_until(lambda: unready_s(client, failed_s) is None, limit_s=60)
    assert time.monotonic() - failed_s < 30, "the kubelet would be NotReady"
    assert node.socket.readlink() == node.containerd.place.socket
    plain = node.pod()
    assert "hello" in client.shell(client.started(plain, client.run(plain)), "echo hello")
    with pytest.raises(grpc.RpcError, match="bypassed"):
        client.run(refused)
    bare = client.started(held, sandbox, "bare")
    # A check begins with each bypass and each start of its watch, and every four minutes.
    node.processes.kill("bypass")
    node.processes.restart("bypass")
    wait_until(lambda: without_devices(node) == {bare: False}, limit_s=60)
    assert record(node) is not None
    node.processes.kill("shim")
    node.processes.start("shim", command)
    wait_until(lambda: record(node) is None, limit_s=120)
    assert not node.socket.is_symlink()
    client.stub.Version(cri.VersionRequest(), timeout=60, wait_for_ready=True)
    again = client.started(refused, client.run(refused))
    assert client.opens(again, f"/dev/infiniband/{refused.vfs[0].uverbs}")
    assert client.opens(kept, f"/dev/infiniband/{held.vfs[0].uverbs}")


def test_a_shim_that_hangs_is_killed_so_that_the_kubelet_connects_again(node: Any, client: Any) -> None:
    """A stopped process keeps the kubelet's calls for as long as their deadlines are; the kernel still connects."""
    hung = node.processes.pid("shim")
    client.stub.Version(cri.VersionRequest(), timeout=60)
    os.kill(hung, signal.SIGSTOP)
    failed_s = time.monotonic()
    with pytest.raises(grpc.RpcError) as ended:
        client.stub.ListPodSandbox(cri.ListPodSandboxRequest(), timeout=120)
    assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
    wait_until(lambda: unready_s(client, failed_s) is None, limit_s=60)
    assert time.monotonic() - failed_s < 30, "the kubelet would be NotReady"
    plain = node.pod()
    client.remove(client.run(plain))
    node.processes.kill("shim")
    node.processes.restart("shim")
    wait_until(lambda: record(node) is None, limit_s=120)
    client.stub.Version(cri.VersionRequest(), timeout=60, wait_for_ready=True)


def unready_s(client: Any, since_s: float) -> float | None:
    """Return for how long the runtime has not answered, None where it does: as the kubelet asks, without waiting."""
    try:
        client.stub.Status(cri.StatusRequest(), timeout=60)
    except grpc.RpcError:
        return time.monotonic() - since_s
    return None


def record(node: Any) -> Any:
    path = node.layout.run / "extract/shim-bypass.json"
    return json.loads(path.read_text()) if path.exists() else None


def without_devices(node: Any) -> Mapping[str, bool] | None:
    path = node.layout.run / "extract/without-devices.json"
    if not path.exists():
        return None
    return {each["id"]: each.get("stopped", False) for each in json.loads(path.read_text())["containers"]}
