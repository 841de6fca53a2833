"""A kubelet on the runtime's own socket, for pods that the shim has recorded before: what it makes there is refused."""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri

from tests.support.polling import wait_until

pytestmark = pytest.mark.containerd


@pytest.fixture(autouse=True)
def nothing_is_left(node: Any) -> Iterator[None]:
    """After every test the host is as it was before it: links, VF settings, ledger."""
    before = node.at_rest()
    yield
    node.remove_pods()
    wait_until(lambda: node.held() == {} and node.at_rest() == before)


@pytest.fixture
def direct(node: Any) -> Iterator[Any]:
    """A client of the runtime's own socket."""
    with node.client(node.containerd.place.socket) as client:
        yield client


def test_a_recorded_pod_gets_no_second_sandbox_past_the_shim(node: Any, client: Any, direct: Any) -> None:
    """Its record is from its first sandbox, which went through the shim: that satisfies no other one."""
    pod = node.pod(node.functions[0])
    client.remove(client.run(pod))
    assert (node.layout.state / f"pods/{pod.uid}.json").exists()
    with pytest.raises(grpc.RpcError) as error:
        direct.run(pod)
    assert "has no RunPodSandbox call in progress" in error.value.details()
    assert node.held() == {}
    client.remove(client.run(pod))


def test_a_container_made_past_the_shim_is_found_and_stopped(node: Any, client: Any, direct: Any) -> None:
    """It has the netdev and no device. It is told while the kubelet is away, and stopped when the kubelet is back."""
    pod = node.pod(node.functions[0])
    sandbox = client.run(pod)
    kept = client.started(pod, sandbox, "kept")
    bare = direct.started(pod, sandbox, "bare")
    assert "net1" in direct.shell(bare, "ip link")
    assert "No such file" in direct.shell(bare, "ls /dev/infiniband")
    os.kill(node.processes.pid("shim"), signal.SIGHUP)
    wait_until(lambda: told(node) == {bare: False})
    client.stub.Status(cri.StatusRequest(), timeout=60)
    wait_until(lambda: state(client, bare) == cri.CONTAINER_EXITED)
    assert told(node) == {bare: True}
    assert state(client, kept) == cri.CONTAINER_RUNNING
    again = client.started(pod, sandbox, "again")
    assert client.opens(again, f"/dev/infiniband/{pod.vfs[0].uverbs}")
    client.remove(sandbox)
    os.kill(node.processes.pid("shim"), signal.SIGHUP)
    wait_until(lambda: told(node) == {})


@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGKILL])
def test_a_call_whose_shim_ends_costs_a_retry_only(node: Any, client: Any, ends: signal.Signals) -> None:
    """Its ADD waits for the VF of another pod: it is undone or refused, and the kubelet's next try has its own mark."""
    first, second = node.pod(node.functions[0]), node.pod(node.functions[0])
    holder = client.run(first)
    with ThreadPoolExecutor(1) as pool, node.client() as other:
        waiting = pool.submit(other.run, second)
        wait_until(lambda: marks(node, second) != [])
        node.processes.kill("shim", ends)
        with pytest.raises(grpc.RpcError):
            waiting.result()
    node.processes.restart("shim")
    node.processes.await_ready("shim", node.answers)
    assert marks(node, second) == []
    with node.client() as again:
        again.remove(holder)
        wait_until(lambda: runs(again, second))
        assert node.held() == {second.vfs[0].pci: second.uid}
        node.remove_pods()


def test_a_call_that_the_kubelet_gave_up_costs_a_retry_only(node: Any, client: Any) -> None:
    """Its deadline passes while ADD waits for the VF of another pod; nothing of the first try is in the way."""
    first, second = node.pod(node.functions[0]), node.pod(node.functions[0])
    holder = client.run(first)
    with pytest.raises(grpc.RpcError) as error:
        client.stub.RunPodSandbox(cri.RunPodSandboxRequest(config=second.config), timeout=2)
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: marks(node, second) == [])
    client.remove(holder)
    wait_until(lambda: runs(client, second))
    assert node.held() == {second.vfs[0].pci: second.uid}


def runs(client: Any, pod: Any) -> bool:
    """Return whether a try to run a pod succeeds: the runtime may still be at the one before."""
    try:
        client.run(pod)
    except grpc.RpcError:
        return False
    return True


def marks(node: Any, pod: Any) -> list[str]:
    return [path.name for path in (node.layout.run / "sandboxes").glob(f"{pod.uid}.*")]


def told(node: Any) -> Mapping[str, bool] | None:
    """Return what the shim has reported: by a container's id whether it stops it."""
    path = node.layout.run / "extract/without-devices.json"
    if not path.exists():
        return None
    return {each["id"]: each.get("stopped", False) for each in json.loads(path.read_text())["containers"]}


def state(client: Any, container: str) -> int:
    answer = client.stub.ContainerStatus(cri.ContainerStatusRequest(container_id=container), timeout=60)
    return int(answer.status.state)
