"""The shim killed again and again while pods come, by a client that retries as the kubelet does."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri

from tests.support.polling import reaches, wait_until
from tests.support.seeds import Part

PODS, KILLS = 24, 8
# What a pod takes that meets no killed shim: lists its sandboxes, runs one, lists its containers, makes one.
CALLS_OF_A_POD = 4
pytestmark = [pytest.mark.containerd, pytest.mark.timeout(900)]


class CallCounter:
    """How many calls of the pods' lives were answered: the shim is killed by that count, not by a clock."""

    def __init__(self) -> None:
        self._number = 0
        self._changed = threading.Condition()

    def count(self) -> None:
        with self._changed:
            self._number += 1
            self._changed.notify_all()

    def await_number(self, number: int, limit_s: float = 300) -> None:
        """Return when so many were answered."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._number >= number, limit_s)


class Kubelet:
    """What a kubelet does for one pod until it runs: look what is there, make what is missing, try again on errors."""

    def __init__(self, client: Any, pod: Any, answered: CallCounter) -> None:
        self._answered = answered
        self._client = client
        self._pod = pod
        self._running = ("", "")
        self.refused: list[grpc.StatusCode] = []

    def sync_until_running(self, limit_s: float = 300) -> tuple[str, str]:
        """Return the ids of the sandbox and of the container."""
        assert reaches(self._sync, limit_s, pause_s=0.1), f"does not run, refused with {self.refused[-5:]}"
        return self._running

    def _sync(self) -> bool:
        try:
            sandbox = self._sandbox()
            self._running = sandbox, self._container(sandbox)
        except grpc.RpcError as error:
            self.refused.append(error.code())
            return False
        return True

    def _sandbox(self) -> str:
        wanted = cri.PodSandboxFilter(label_selector={"uid": self._pod.uid})
        listed = self._client.stub.ListPodSandbox(cri.ListPodSandboxRequest(filter=wanted), timeout=60).items
        self._answered.count()
        for found in listed:
            if found.state == cri.SANDBOX_READY:
                return str(found.id)
        for found in listed:
            self._client.remove(found.id)
        config = self._config
        config.metadata.attempt = 1 + max((found.metadata.attempt for found in listed), default=-1)
        answer = self._client.stub.RunPodSandbox(cri.RunPodSandboxRequest(config=config), timeout=60)
        self._answered.count()
        return str(answer.pod_sandbox_id)

    def _container(self, sandbox: str) -> str:
        wanted = cri.ContainerFilter(pod_sandbox_id=sandbox)
        listed = self._client.stub.ListContainers(cri.ListContainersRequest(filter=wanted), timeout=60).containers
        self._answered.count()
        for found in listed:
            if found.state == cri.CONTAINER_RUNNING:
                return str(found.id)
            self._client.stub.RemoveContainer(cri.RemoveContainerRequest(container_id=found.id), timeout=60)
        started = str(self._client.started(self._pod, sandbox))
        self._answered.count()
        return started

    @property
    def _config(self) -> Any:
        config = self._pod.config
        config.labels["uid"] = self._pod.uid
        return config


@pytest.mark.slow
def test_a_shim_killed_under_load_costs_retries_only(node: Any, part: Part) -> None:
    """Every pod ends up with one sandbox, one container and its own VF; containers of before run on untouched."""
    before = node.at_rest()
    old, *pods = [node.pod(vf) for vf in node.functions[: PODS + 1]]
    with node.client() as client:
        kept = client.started(old, kept_sandbox := client.run(old))
    with ThreadPoolExecutor(max_workers=PODS) as pool:
        answered = CallCounter()
        lives = [pool.submit(live, node, pod, answered) for pod in pods]
        kill_again_and_again(node, answered, part)
        lived = [life.result() for life in lives]
    refused = {code for _, _, codes in lived for code in codes}
    assert refused <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.FAILED_PRECONDITION}
    assert grpc.StatusCode.UNAVAILABLE in refused, "no call met a killed shim"
    with node.client() as client:
        assert client.opens(kept, f"/dev/infiniband/{old.vfs[0].uverbs}")
        for pod, (_, container, _) in zip(pods, lived, strict=True):
            assert client.shell(container, "ls /dev/infiniband").split() == ["rdma_cm", pod.vfs[0].uverbs]
            assert client.opens(container, f"/dev/infiniband/{pod.vfs[0].uverbs}")
        assert node.held() == {pod.vfs[0].pci: pod.uid for pod in (old, *pods)}
        for sandbox in (kept_sandbox, *(sandbox for sandbox, _, _ in lived)):
            client.remove(sandbox)
    wait_until(lambda: node.held() == {} and node.at_rest() == before)


def live(node: Any, pod: Any, answered: CallCounter) -> tuple[str, str, list[grpc.StatusCode]]:
    with node.client() as client:
        kubelet = Kubelet(client, pod, answered)
        return *kubelet.sync_until_running(), kubelet.refused


def kill_again_and_again(node: Any, answered: CallCounter, part: Part) -> None:
    """Kill the shim as calls are answered that the seed chooses, while the others of that moment are under way."""
    numbers = sorted(part.random("kills of the shim").sample(range(1, PODS * CALLS_OF_A_POD + 1), KILLS))
    print(f"--seed {part.seed}: the shim is killed after calls {numbers}")
    for number in numbers:
        answered.await_number(number)
        node.processes.kill("shim")
        node.processes.restart("shim")
        node.processes.await_ready("shim", node.answers)
