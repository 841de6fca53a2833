"""The scheduler as a process, against a server: the whole way from a pod to its binding."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bench.served.apiservers import free_ports
from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.annotations.assignment import Assignment, read_assignment
from mooring.annotations.assignment_signature import key_id, read_signature, signed_bytes
from scheduler.kube.objects import Pod
from tests.scheduler.conftest import MakeNode, MakePf
from tests.scheduler.reference.messages import refusal
from tests.scheduler.server.cluster import Cluster
from tests.scheduler.server.process import ALONE, running
from tests.support.polling import eventually


def _assignment(pod: Pod) -> Assignment:
    return read_assignment(pod.annotations[names.ASSIGNMENT])


def _given(pods: dict[str, Pod]) -> list[tuple[str | None, str]]:
    """Return the VFs that pods have, each with its node."""
    return [(pod.spec.node_name, vf.pci) for pod in pods.values() for vf in _assignment(pod).vfs]


async def _event(cluster: Cluster, pod: str, reason: str) -> Any:
    """Wait for an event about a pod."""

    async def found() -> Any:
        return next((one for one in await cluster.events(pod) if one["reason"] == reason), None)

    return await eventually(found)


async def test_many_pods_at_once_on_one_remaining_vf_bind_exactly_one(
    cluster: Cluster, make_node: MakeNode, make_pf: MakePf
) -> None:
    """The others stay Pending with a reason, and the next gets the VF when the first is gone."""
    await cluster.add_node(make_node("n1", (make_pf(vfs=1),)))
    wanted = [f"p{number}" for number in range(12)]
    await asyncio.gather(*(cluster.add_pod(name, "[{}]") for name in wanted))
    async with running(cluster, *ALONE):
        told = []
        for _ in range(2):
            pods = await eventually(lambda: _one_bound(cluster))
            (bound,) = [pod for pod in pods.values() if pod.spec.node_name]
            told = [await cluster.message_of(name) for name, pod in pods.items() if pod is not bound]
            assert set(map(refusal, told)) == {"0/1 nodes are available: 1 not enough free RDMA VFs."}
            assert _assignment(bound).vfs[0].pci == "0000:04:00.2"
            await cluster.delete(bound.metadata.name)
        assert len(told) == 10


async def _one_bound(cluster: Cluster) -> dict[str, Pod] | None:
    pods = await cluster.pods()
    return pods if any(pod.spec.node_name for pod in pods.values()) else None


async def test_a_restarted_scheduler_gives_no_vf_twice(cluster: Cluster, make_node: MakeNode, make_pf: MakePf) -> None:
    """It knows what is used from the assignments alone, also after it was killed."""
    await cluster.add_node(make_node("n1", (make_pf(vfs=4),)))
    await cluster.add_node(make_node("n2", (make_pf(vfs=4),)))
    for generation in range(4):
        await cluster.add_pod(f"p{generation}", '[{"min_tx_rate":20000},{}]')
        async with running(cluster, *ALONE) as process:
            await cluster.bound(f"p{generation}")
            process.kill()
    pods = await cluster.pods()
    given = _given(pods)
    assert len(given) == len(set(given)) == 8
    await cluster.add_pod("late", "[{}]")
    async with running(cluster, *ALONE):
        assert refusal(await cluster.message_of("late")) == "0/2 nodes are available: 2 not enough free RDMA VFs."


async def test_a_malformed_request_is_reported_and_scheduled_when_fixed(
    cluster: Cluster, make_node: MakeNode, make_pf: MakePf
) -> None:
    """Condition and event name field and rule; other pods are scheduled; the fixed annotation is enough."""
    await cluster.add_node(make_node("n1", (make_pf(),)))
    await cluster.add_pod("bad", '[{},{"min_tx_rte":5}]')
    await cluster.add_pod("good", "[{}]")
    async with running(cluster, *ALONE):
        await cluster.bound("good")
        rule = "annotation 'mooring.dev/interfaces'[1].min_tx_rte: unknown field"
        assert rule in await cluster.message_of("bad")
        event = await _event(cluster, "bad", "FailedScheduling")
        assert rule in event["message"]
        await cluster.annotate("bad", **{names.REQUEST: '[{"min_tx_rate":5}]'})
        await cluster.bound("bad")


async def test_a_bound_pod_has_a_signature_that_holds_and_an_event_with_the_reasons_of_its_placement(
    cluster: Cluster, make_node: MakeNode, make_pf: MakePf, tmp_path: Path
) -> None:
    """Over the bytes that the API server gives back; it is in the Binding, not in a second write.

    The reasons are data: node, PFs and VFs, scores.
    """
    key, file = Ed25519PrivateKey.generate(), tmp_path / "signing.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    await cluster.add_node(make_node("n1", (make_pf(),)))
    await cluster.add_pod("p", "[{}]")
    async with running(cluster, *ALONE, "--signing-key", str(file)):
        pod = await cluster.bound_pod("p")
        event = await _event(cluster, "p", "Scheduled")
    given = read_signature(pod.annotations[names.SIGNATURE])
    assert given.key == key_id(key.public_key().public_bytes_raw())
    key.public_key().verify(given.value, signed_bytes(pod.annotations[names.ASSIGNMENT].encode()))
    why = json.loads(event["metadata"]["annotations"][names.WHY])
    assert (why["v"], why["node"], why["pfs"]) == (1, "n1", {"pf0": [0]})


async def test_pods_are_bound_while_watches_are_cut_and_binds_lost(
    cluster: Cluster, server: ApiServer, make_node: MakeNode, make_pf: MakePf
) -> None:
    """In the end every pod has VFs of its own."""
    for name in ("n1", "n2"):
        await cluster.add_node(make_node(name, (make_pf(vfs=20),)))
    for kind, code in (("drop_after", 0), ("drop_before", 0), ("answer", 500), ("answer", 429), ("drop_after", 0)):
        server.faults.plan(Fault("POST", "/binding$", kind, times=3, code=code))  # type: ignore[arg-type]
    wanted = [f"p{number}" for number in range(20)]
    async with running(cluster, *ALONE):
        for number, name in enumerate(wanted):
            await cluster.add_pod(name, "[{},{}]")
            if number % 5 == 0:
                server.cut_watches()
            if number == 12 and isinstance(server, ApiServer):
                server.compact()
        pods = await cluster.bound(*wanted)
    given = _given(pods)
    assert len(given) == len(set(given)) == 40


async def test_health_and_metrics_are_served(cluster: Cluster, make_node: MakeNode, make_pf: MakePf) -> None:
    """Ready once nodes and pods are listed; counted as dashboards for kube-scheduler expect it, and Mooring's own."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    await cluster.add_node(make_node("n1", (make_pf(vfs=4),)))
    await cluster.add_node(make_node("n2", annotations={names.INVENTORY: "{"}))
    await cluster.add_node(make_node("n3", (make_pf(vfs=5),), boot="another"))
    await cluster.add_pod("fits", "[{}]")
    await cluster.add_pod("gated", "[{}]", schedulingGates=[{"name": "g"}])
    async with running(cluster, *ALONE, "--metrics-addr", address), aiohttp.ClientSession() as session:

        async def get(path: str) -> str:
            try:
                async with session.get(f"http://{address}{path}") as answer:
                    return await answer.text() if answer.status == 200 else ""
            except aiohttp.ClientConnectionError:
                return ""

        assert await eventually(lambda: get("/readyz")) == "ok"
        assert (await get("/healthz"), await get("/livez")) == ("ok", "ok")
        # The phases of the first decision are timed.
        await cluster.bound("fits")
        await cluster.add_pod("waits", "[{},{},{},{}]")
        await cluster.message_of("waits")

        async def counted() -> str:
            text = await get("/metrics")
            return text if 'mooring_binds_total{result="bound"} 1.0' in text else ""

        text = await eventually(counted)
    for line in (
        'scheduler_schedule_attempts_total{profile="mooring",result="scheduled"} 1.0',
        'scheduler_schedule_attempts_total{profile="mooring",result="unschedulable"} 1.0',
        'scheduler_scheduling_attempt_duration_seconds_count{profile="mooring",result="scheduled"} 1.0',
        "scheduler_scheduling_algorithm_duration_seconds_count 2.0",
        *(
            f'scheduler_framework_extension_point_duration_seconds_count{{extension_point="{point}",profile="mooring",'
            f'status="Success"}} {count:.1f}'
            for point, count in (("PreFilter", 2), ("Filter", 2), ("Score", 1), ("Reserve", 1), ("Bind", 1))
        ),
        'scheduler_queue_incoming_pods_total{event="PodAdd",queue="active"} 2.0',
        'scheduler_queue_incoming_pods_total{event="ScheduleAttemptFailure",queue="unschedulable"} 1.0',
        'scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"} 1.0',
        "scheduler_pod_scheduling_attempts_count 1.0",
        'scheduler_pending_pods{queue="active"} 0.0',
        'scheduler_pending_pods{queue="backoff"} 0.0',
        'scheduler_pending_pods{queue="unschedulable"} 1.0',
        'scheduler_pending_pods{queue="gated"} 1.0',
        'mooring_free_vfs{network="rail0"} 3.0',
        'mooring_ignored_objects_total{reason="inventory"} 1.0',
        'reason="node(s) had an unreadable RDMA inventory"} 1.0',
        'mooring_free_bits_per_second{network="rail0"} 9e+10',
        "mooring_placement_budget_exhausted_total 0.0",
        "mooring_disputed_vfs 0.0",
    ):
        assert line in text


@pytest.mark.parametrize(
    ("flags", "status"),
    [
        (("--leader-elect", "perhaps"), 2),
        (("--nonsense",), 2),
        (("--signing-key", "/no"), 2),
        (("--kubeconfig", "/nowhere"), 1),
    ],
)
async def test_wrong_usage_and_missing_access_end_with_their_exit_status(
    flags: tuple[str, ...], status: int, cluster: Cluster
) -> None:
    """2 for usage, 1 for a failure; one line says why."""
    async with running(cluster, *flags) as process:
        async with asyncio.timeout(90):
            _, said = await process.communicate()
        assert process.returncode == status
        assert b"Traceback" not in said
