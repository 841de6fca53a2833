"""The scheduler as a process, against a server: the whole way from a pod to its binding."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from devcluster.apiserver.http.faults import Fault, FaultKind
from devcluster.processes import free_ports
from mooring import names
from mooring.annotations.assignment_signature import key_id, read_signature, signed_bytes
from tests.scheduler.reference.messages import refusal
from tests.scheduler.server.cluster import Cluster, all_given_vfs, when
from tests.scheduler.server.process import ALONE, page, scheduler

# What becomes of a Binding.
LOST: tuple[tuple[FaultKind, int], ...] = (("drop_after", 0), ("drop_before", 0), ("answer", 500), ("answer", 429))


async def test_a_restarted_scheduler_gives_no_vf_twice(cluster: Cluster) -> None:
    """It knows what is used from the assignments alone, whatever was cut or lost; the next pod waits for a VF."""
    for name in ("n1", "n2"):
        await cluster.add_rdma_node(name, vfs=4)
    for generation, (kind, code) in enumerate(LOST):
        cluster.plan(Fault("POST", "/binding$", kind, times=2, code=code))
        async with scheduler(cluster, *ALONE) as killed:
            await killed.until_logged("listed")
            cluster.server.cut_watches()
            await cluster.add_pod(f"p{generation}", '[{"min_tx_rate":20000},{}]')
            await cluster.bound(f"p{generation}")
            killed.process.kill()
    assert len(all_given_vfs(await cluster.pods())) == 8
    await cluster.add_pod("late", "[{}]")
    async with scheduler(cluster, *ALONE):
        assert refusal(await cluster.message_of("late")) == "0/2 nodes are available: 2 not enough free RDMA VFs."
        await cluster.delete("p0")
        all_given_vfs(await cluster.bound("late"))


async def test_a_bound_pod_has_a_signature_and_the_reasons_of_its_placement(cluster: Cluster, tmp_path: Path) -> None:
    """Over the bytes that the API server gives back; it is in the Binding, not in a second write.

    The reasons are data: node, PFs and VFs, scores.
    """
    key, file = Ed25519PrivateKey.generate(), tmp_path / "signing.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    await cluster.add_rdma_node("n1", vfs=4)
    await cluster.add_pod("p", "[{}]")
    async with scheduler(cluster, *ALONE, "--signing-key", str(file)):
        pod = await cluster.bound_pod("p")
        event = await cluster.event("p", reason="Scheduled")
    signature = read_signature(pod.annotations[names.SIGNATURE])
    assert signature.key == key_id(key.public_key().public_bytes_raw())
    key.public_key().verify(signature.value, signed_bytes(pod.annotations[names.ASSIGNMENT].encode()))
    why = json.loads(event["metadata"]["annotations"][names.WHY])
    assert (why["v"], why["node"], why["pfs"]) == (1, "n1", {"pf0": [0]})


METRICS = """
scheduler_schedule_attempts_total{profile="mooring",result="scheduled"} 1.0
scheduler_schedule_attempts_total{profile="mooring",result="unschedulable"} 1.0
scheduler_scheduling_attempt_duration_seconds_count{profile="mooring",result="scheduled"} 1.0
scheduler_scheduling_algorithm_duration_seconds_count 2.0
scheduler_queue_incoming_pods_total{event="PodAdd",queue="active"} 2.0
scheduler_queue_incoming_pods_total{event="ScheduleAttemptFailure",queue="unschedulable"} 1.0
scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"} 1.0
scheduler_pod_scheduling_attempts_count 1.0
scheduler_pending_pods{queue="active"} 0.0
scheduler_pending_pods{queue="backoff"} 0.0
scheduler_pending_pods{queue="unschedulable"} 1.0
scheduler_pending_pods{queue="gated"} 1.0
mooring_free_vfs{network="rail0"} 3.0
mooring_ignored_objects_total{reason="inventory"} 1.0
reason="node(s) had an unreadable RDMA inventory"} 1.0
mooring_free_bits_per_second{network="rail0"} 9e+10
mooring_placement_budget_exhausted_total 0.0
mooring_disputed_vfs 0.0
"""
POINTS = {"PreFilter": 2, "Filter": 2, "Score": 1, "Reserve": 1, "Bind": 1}


async def test_health_and_metrics_are_served(cluster: Cluster) -> None:
    """Ready once nodes and pods are listed; counted as dashboards for kube-scheduler expect it, and Mooring's own."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    await cluster.add_rdma_node("n1", vfs=4)
    await cluster.add_rdma_node("n2", annotations={names.INVENTORY: "{"})
    await cluster.add_rdma_node("n3", vfs=5, boot="another")
    await cluster.add_pod("fits", "[{}]")
    await cluster.add_pod("gated", "[{}]", schedulingGates=[{"name": "g"}])
    async with scheduler(cluster, *ALONE, "--metrics-addr", address):
        assert await when(lambda: page(address, "/readyz"), bool) == "ok"
        assert [await page(address, path) for path in ("/healthz", "/livez")] == ["ok", "ok"]
        # The phases of the first decision are timed.
        await cluster.bound("fits")
        await cluster.add_pod("waits", "[{},{},{},{}]")
        await cluster.message_of("waits")
        bound = 'mooring_binds_total{result="bound"} 1.0'
        metrics = await when(lambda: page(address, "/metrics"), lambda metrics: bound in metrics)
    assert [line for line in METRICS.split("\n") if line not in metrics] == []
    for point, count in POINTS.items():
        labels = f'{{extension_point="{point}",profile="mooring",status="Success"}}'
        assert f"scheduler_framework_extension_point_duration_seconds_count{labels} {count:.1f}" in metrics


@pytest.mark.parametrize(
    ("flags", "status", "reason"),
    [
        (("--leader-elect", "perhaps"), 2, b"leader-elect"),
        (("--nonsense",), 2, b"--nonsense"),
        (("--signing-key", "/no"), 2, b"signing key '/no' cannot be read"),
        (("--extender-tls-cert", "/no"), 2, b"TLS of the extender needs a certificate and its key"),
        (("--kubeconfig", "/nowhere"), 1, b"/nowhere"),
    ],
)
async def test_wrong_usage_and_missing_access_end_with_their_exit_status(
    flags: tuple[str, ...], status: int, reason: bytes, cluster: Cluster
) -> None:
    """2 for usage, 1 for a failure; one line says why."""
    async with scheduler(cluster, *flags) as ended:
        assert await ended.end() == status
        assert b"Traceback" not in b"".join(ended.lines)
        assert reason in b"".join(ended.lines)
