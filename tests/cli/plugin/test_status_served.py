"""`kubectl mooring status` and `explain` against an API server: the scheduler's Lease, `--wait`, no server at all."""

import asyncio
import json
from pathlib import Path

from devcluster.processes import free_ports
from tests.cli.plugin.cluster import Served, node, pf, pod


async def cluster(served: Served) -> None:
    await served.add_node(node("n1", (pf(0),)))


async def checks(served: Served, *argv: str) -> tuple[int, dict[str, str]]:
    """Return the status of the command, and the state of each check."""
    status, out, _ = await served.run("status", "-o", "json", *argv)
    document = json.loads(out)
    assert document["kind"] == "MooringStatus"
    return status, {one["check"]: one["state"] for one in document["checks"]}


async def test_without_a_leader_status_fails_and_with_one_it_is_well(served: Served) -> None:
    """The Lease is found in whichever namespace it is."""
    await cluster(served)
    status, found = await checks(served, "--without-guard")
    assert (status, found["scheduler"], found["nodes"], found["admission policies"]) == (1, "error", "ok", "warning")
    await served.lead()
    status, found = await checks(served, "--without-guard")
    assert (status, found["scheduler"]) == (0, "ok")
    status, out, _ = await served.run("status", "--without-guard")
    assert out.splitlines()[0].split()[:3] == ["ok", "API", "server"]
    assert out.splitlines()[1].split()[:4] == ["ok", "scheduler", "s-1", "leads:"]


async def test_a_lease_that_nobody_renews_any_more_is_no_leader(served: Served) -> None:
    await cluster(served)
    await served.lead(age_s=3600)
    _, out, _ = await served.run("doctor")
    assert "no scheduler leads: its Lease 'kube-system/mooring-scheduler' was last renewed 60 min ago" in out


async def test_explain_says_first_that_no_scheduler_runs(served: Served) -> None:
    """Of a pod that waits; the status is that of a failure."""
    await cluster(served)
    await served.add_pod(pod("fits", "[{}]"))
    status, out, _ = await served.run("explain", "fits")
    assert status == 1
    first = "no scheduler leads: no namespace has a Lease 'mooring-scheduler'; no pod is bound until one leads"
    assert out.splitlines()[0] == first
    assert "would be bound to n1" in out
    _, out, _ = await served.run("explain", "fits", "-o", "json")
    assert json.loads(out)["scheduler"]["leads"] is False
    await served.lead()
    status, out, _ = await served.run("explain", "fits")
    assert status == 0
    assert "no scheduler leads" not in out


async def test_explain_of_a_group_says_first_that_no_scheduler_runs(served: Served) -> None:
    await cluster(served)
    member = pod("rank-0", "[{}]", annotations={"mooring.dev/group": '{"name":"train","min":1}'})
    await served.add_pod(member)
    status, out, _ = await served.run("explain", "group/train")
    assert status == 1
    assert out.startswith("no scheduler leads: ")
    await served.lead()
    status, out, _ = await served.run("explain", "group/train")
    assert status == 0


async def test_status_waits_until_all_is_well(served: Served) -> None:
    """What it waits for is on stderr."""
    await cluster(served)
    waits = asyncio.create_task(served.run("status", "--without-guard", "--wait", "--timeout", "60"))
    await asyncio.sleep(0)
    await served.lead()
    status, out, _ = await waits
    assert status == 0
    assert "leads:" in out


async def test_a_wait_that_is_over_ends_with_what_is_wrong(served: Served) -> None:
    await cluster(served)
    status, out, err = await served.run("status", "--without-guard", "--wait", "--timeout", "0.5")
    assert status == 1
    assert "no scheduler leads" in out
    assert err.splitlines() == ["waiting for: scheduler", "error: timed out: not all is well after 0.5 s"]


async def test_an_api_server_that_does_not_answer_is_a_check_that_fails(served: Served, tmp_path: Path) -> None:
    """Nothing is known of the others, so they are not shown."""
    (port,) = free_ports(1)
    config = json.loads(served.kubeconfig.read_text())
    config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{port}"}
    served.kubeconfig.write_text(json.dumps(config))
    status, found = await checks(served)
    assert (status, found) == (1, {"API server": "error"})


async def test_without_the_right_to_read_the_lease_that_is_a_warning(guarded: Served) -> None:
    """The right that is missing is named."""
    await cluster(guarded)
    await guarded.restrict("nodes", "pods")
    _, out, err = await guarded.run("status")
    assert "its Lease could not be read: leadership is unknown" in out
    assert "Warning: forbidden: needs the right to list leases.coordination.k8s.io\n" in err
