"""Through the shim to the real containerd and runc: a pod's own devices and links, and everything given back."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri

from tests.support.polling import reaches, wait_until

pytestmark = pytest.mark.containerd


@pytest.fixture(autouse=True)
def nothing_is_left(node: Any) -> Iterator[None]:
    """After every test the host is as it was before it: links, VF settings, ledger."""
    before = node.at_rest()
    assert node.held() == {}
    yield
    left = node.held()
    node.remove_pods()  # a test that failed half-way costs the others nothing
    assert left == {}
    wait_until(lambda: node.at_rest() == before)


def test_a_container_opens_its_own_devices_and_no_other_pods(node: Any, client: Any) -> None:
    """The device cgroup of runc decides: ENXIO, for no driver is behind the node, or EPERM."""
    first, second = node.pod(*node.functions[:2]), node.pod(node.functions[2])
    sandboxes = [client.run(pod) for pod in (first, second)]
    mine, other = (client.started(pod, box) for pod, box in zip((first, second), sandboxes, strict=True))
    listed = client.shell(mine, "ls /dev/infiniband").split()
    assert listed == sorted(["rdma_cm", *(vf.uverbs for vf in first.vfs)])
    assert all(client.opens(mine, f"/dev/infiniband/{vf.uverbs}") for vf in first.vfs)
    neighbour = node.functions[2]
    number = 192 + neighbour.number
    assert "can't open" in client.shell(mine, f": </dev/infiniband/{neighbour.uverbs}")
    assert client.shell(mine, f"mknod /tmp/stolen c 231 {number}") == ""
    assert not client.opens(mine, "/tmp/stolen")
    assert client.opens(other, f"/dev/infiniband/{neighbour.uverbs}")
    for sandbox in sandboxes:
        client.remove(sandbox)


def test_the_pod_has_its_links_with_addresses_and_its_rates(node: Any, client: Any) -> None:
    """net1 and net2 in the pod's namespace; the rate is set on the PF; the environment describes both."""
    pod = node.pod(*node.functions[4:6], min_tx_rate=250)
    sandbox = client.run(pod)
    container = client.started(pod, sandbox)
    described = json.loads(client.shell(container, "echo $MOORING_DEVICES"))
    assert [(vf["name"], vf["pci"], vf["uverbs"]) for vf in described] == [
        (name, vf.pci, vf.uverbs) for name, vf in zip(("net1", "net2"), pod.vfs, strict=True)
    ]
    for vf in described:
        shown = client.shell(container, f"ip -4 addr show {vf['name']}")
        assert f"inet {vf['ips'][0].partition('/')[0]}/" in shown
    names = ",".join(vf.rdma for vf in pod.vfs)
    assert client.shell(container, "echo $NCCL_IB_HCA").strip() == f"={names}"
    _, told = node.at_rest()
    assert [told["enp4s0f0"][str(vf.vf)]["min_tx_rate"] for vf in pod.vfs] == [250, 250]
    client.remove(sandbox)


def test_only_the_containers_that_are_named_get_devices(node: Any, client: Any) -> None:
    """The others of the pod share its links, not its devices."""
    pod = node.pod(node.functions[0], containers=["trainer"])
    sandbox = client.run(pod)
    trainer, sidecar = (client.started(pod, sandbox, name) for name in ("trainer", "sidecar"))
    assert client.opens(trainer, f"/dev/infiniband/{pod.vfs[0].uverbs}")
    assert "No such file" in client.shell(sidecar, "ls /dev/infiniband")
    assert client.shell(sidecar, "echo $MOORING_DEVICES$NCCL_IB_HCA").strip() == ""
    client.remove(sandbox)


def test_a_pod_without_vfs_runs_as_ever(node: Any, client: Any) -> None:
    """The container has no device and no variable of ours, the pod no record."""
    pod = node.pod()
    sandbox = client.run(pod)
    container = client.started(pod, sandbox)
    assert "No such file" in client.shell(container, "ls /dev/infiniband")
    assert "net1" not in client.shell(container, "ip link")
    assert not (node.layout.state / f"pods/{pod.uid}.json").exists()
    client.remove(sandbox)


def test_the_address_of_an_exec_session_passes_as_it_is(node: Any, client: Any) -> None:
    """The session itself goes to the runtime's own streaming server, which listens at that address."""
    sandbox = client.run(pod := node.pod())
    container = client.started(pod, sandbox)
    url = urlsplit(client.stub.Exec(cri.ExecRequest(container_id=container, cmd=["true"], stdout=True)).url)
    assert (url.scheme, url.hostname, url.path.startswith("/exec/")) == ("http", "127.0.0.1", True)
    knock = f"import socket; socket.create_connection(('127.0.0.1', {url.port}), 5).close()"
    subprocess.run(["nsenter", f"--net={node.layout.netns}", sys.executable, "-c", knock], check=True)
    client.remove(sandbox)


def test_a_sandbox_made_past_the_shim_does_not_start(node: Any) -> None:
    """The CNI plugin sees a request and no record: it refuses, with the likely cause."""
    with node.client(node.containerd.place.socket) as direct, pytest.raises(grpc.RpcError) as error:
        direct.run(node.pod(node.functions[0]))
    assert "bypassed" in error.value.details()


def test_containers_of_a_pod_that_went_past_the_cni_plugin_are_refused(node: Any, client: Any) -> None:
    """The ledger shows nothing held: FAILED_PRECONDITION, with pod and VF."""
    conflist = next(node.layout.cni_conf.iterdir())
    whole = conflist.read_text()
    document = json.loads(whole)
    document["plugins"] = [plugin for plugin in document["plugins"] if plugin["type"] != "mooring-cni"]
    pod = node.pod(node.functions[0])
    conflist.write_text(json.dumps(document))
    try:
        sandbox = _run_without(node, client, pod)
        with pytest.raises(grpc.RpcError) as error:
            client.create(pod, sandbox)
        assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert f"mooring: pod test/{pod.name}: VF {pod.vfs[0].pci}" in error.value.details()
        client.remove(sandbox)
    finally:
        conflist.write_text(whole)
        _settle(node, client)


def _run_without(node: Any, client: Any, pod: Any) -> str:
    """Run a pod once containerd has read the shortened chain: its VF then stays where it is."""
    ran: list[str] = []

    def is_without() -> bool:
        if ran:
            client.remove(ran[-1])
        ran.append(str(client.run(pod)))
        return not node.held()

    reaches(is_without)
    return ran[-1]


def _settle(node: Any, client: Any) -> None:
    """Wait until containerd has read the whole chain again."""

    def whole() -> bool:
        sandbox = client.run(pod := node.pod(node.functions[0]))
        held = pod.uid in node.held().values()
        client.remove(sandbox)
        return held

    wait_until(whole)


def test_a_killed_shim_comes_back_and_containers_keep_running(node: Any, client: Any) -> None:
    """A pod of before the kill gets its devices in a container of after it; the client reconnects by itself."""
    pod = node.pod(node.functions[0])
    sandbox = client.run(pod)
    before = client.started(pod, sandbox, "before")
    node.processes.kill("shim")
    with pytest.raises(grpc.RpcError) as error:
        client.shell(before, "true")
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    node.processes.restart("shim")
    with node.client() as again:
        wait_until(lambda: _answers(again, before))
        after = again.started(pod, sandbox, "after")
        assert again.opens(after, f"/dev/infiniband/{pod.vfs[0].uverbs}")
        assert again.opens(before, f"/dev/infiniband/{pod.vfs[0].uverbs}")
        again.remove(sandbox)


def _answers(client: Any, container: str) -> bool:
    try:
        return "yes" in client.shell(container, "echo yes")
    except grpc.RpcError:
        return False


def test_fifty_pods_at_once_have_what_they_were_given(node: Any) -> None:
    """Each opens its own device; no VF is held twice; all of them are given back."""
    pods = [node.pod(vf) for vf in node.functions[:50]]

    def live(pod: Any) -> tuple[str, bool]:
        with node.client() as client:
            sandbox = client.run(pod)
            container = client.started(pod, sandbox)
            return sandbox, client.opens(container, f"/dev/infiniband/{pod.vfs[0].uverbs}")

    with ThreadPoolExecutor(max_workers=50) as pool:
        lived = list(pool.map(live, pods))
    assert [opened for _, opened in lived] == [True] * len(pods)
    assert node.held() == {pod.vfs[0].pci: pod.uid for pod in pods}

    def end(sandbox: str) -> None:
        with node.client() as client:
            client.remove(sandbox)

    with ThreadPoolExecutor(max_workers=16) as pool:
        list(pool.map(end, [sandbox for sandbox, _ in lived]))


def test_pods_outlive_a_crash_of_containerd(node: Any, client: Any) -> None:
    """Killed in the middle and started again: the old pod runs on and is given back, a new one gets its devices."""
    pod = node.pod(node.functions[0])
    sandbox = client.run(pod)
    container = client.started(pod, sandbox)
    node.containerd.kill()
    with pytest.raises(grpc.RpcError) as error:
        client.shell(container, "true")
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    node.containerd.start()
    wait_until(lambda: _answers(client, container))
    assert client.opens(container, f"/dev/infiniband/{pod.vfs[0].uverbs}")
    other = node.pod(node.functions[1])
    second = client.run(other)
    assert client.opens(client.started(other, second), f"/dev/infiniband/{other.vfs[0].uverbs}")
    for each in (sandbox, second):
        client.remove(each)
