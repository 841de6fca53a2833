"""A kubelet on the runtime's own socket, for pods that the shim has recorded before: what it makes there is refused."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

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
    assert "not under way through the CRI shim" in error.value.details()
    assert node.held() == {}
    client.remove(client.run(pod))
