"""The counters of held VFs on a simulated host: the server's page while pods come, go and hide."""

import subprocess
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from devcluster.processes import free_ports
from tests.support.polling import wait_until
from tests.support.simulated_nics import MLX5, ON_MLX5

pytestmark = pytest.mark.root


def page(host: Any, port: int) -> str:
    """Scrape the server, which is in the host's network namespace."""
    done = host.enter("curl", "-sf", f"http://127.0.0.1:{port}/metrics")
    return str(done.stdout)


def received(text: str) -> dict[tuple[str, str], float]:
    """Return the packets that each netdev has received, by pod and interface."""
    return {
        (sample.labels["pod"], sample.labels["interface"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "mooring_vf_netdev_rx_packets_total"
    }


def value(text: str, name: str, **labels: str) -> float | None:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return float(sample.value)
    return None


@ON_MLX5
def test_what_pods_hold_is_counted_and_a_namespace_that_took_the_ones_path_is_not(host: Any, other_netns: str) -> None:
    """Two pods; then the first one's namespace is gone and another stands at its path, with a link of the same name."""
    (port,) = free_ports(1)
    host.record(MLX5.first)
    host.record(MLX5.second, uid="u2")
    host.enter("ip", "link", "set", "lo", "up")
    with host.served("--metrics-addr", f"127.0.0.1:{port}", "--reconcile-s", "600"):
        assert host.call("ADD")["status"] == 0
        assert host.call("ADD", uid="u2", container="c2", netns=other_netns)["status"] == 0
        wait_until(lambda: received(page(host, port)).keys() == {("u1", "net1"), ("u2", "rdma7")})
        subprocess.run(("ip", "netns", "delete", host.pod), check=True)
        subprocess.run(("ip", "netns", "add", host.pod), check=True)
        subprocess.run(("ip", "-n", host.pod, "link", "add", "net1", "type", "veth", "peer", "name", "x"), check=True)
        wait_until(lambda: received(page(host, port)).keys() == {("u2", "rdma7")})
        text = page(host, port)
        assert value(text, "mooring_cni_vfs_without_counters", reason="nothing") == 1
        assert value(text, "mooring_cni_vfs_without_counters", reason="late") == 0
        assert "sriov_kubepoddevice" in text
        assert host.call("DEL", uid="u2", container="c2", netns=other_netns)["status"] == 0
