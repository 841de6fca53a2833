"""One leader at a time, by a Lease."""

import asyncio
from typing import Any

import msgspec
import pytest

from devcluster.apiserver.faults import Fault
from devcluster.apiserver.serve import ApiServer
from mooring.kube.client import Client
from scheduler.server import leader
from scheduler.server.leader import Election, LeadershipLost, LeaseUnsure

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/s"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a lease last a second, to be renewed every tenth."""
    monkeypatch.setattr(leader, "LEASE_S", 1)
    monkeypatch.setattr(leader, "RENEW_WITHIN_S", 0.7)
    monkeypatch.setattr(leader, "RETRY_S", 0.1)


async def _spec(client: Client) -> Any:
    return msgspec.json.decode(await client.request("GET", LEASE))["spec"]


async def test_the_first_candidate_leads_and_the_second_waits(client: Client) -> None:
    """A lease that nobody held is not taken over from anybody."""
    first, second = Election(client, "a", "s"), Election(client, "b", "s")
    assert await first.acquire() is False
    waiting = asyncio.create_task(second.acquire())
    keeping = asyncio.create_task(first.keep())
    done, _ = await asyncio.wait({waiting, keeping}, timeout=2)
    assert done == set()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    async with asyncio.timeout(10):
        assert await waiting is True
    spec = await _spec(client)
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("b", 1)


async def test_a_released_lease_is_taken_at_once(client: Client) -> None:
    """And counts as released, not as taken over: there is nothing of the other leader's to wait for."""
    first, second = Election(client, "a", "s"), Election(client, "b", "s")
    await first.acquire()
    await first.release()
    async with asyncio.timeout(10):
        assert await second.acquire() is False


async def test_a_leader_that_cannot_renew_stops_before_the_lease_ends(client: Client, server: ApiServer) -> None:
    """It gives up sooner than any candidate takes over."""
    election = Election(client, "a", "s")
    await election.acquire()
    server.faults.plan(Fault("GET", "/leases/", "answer", times=1000, code=503))
    began = asyncio.get_running_loop().time()
    with pytest.raises(LeadershipLost):
        await election.keep()
    assert asyncio.get_running_loop().time() - began < 1.0


async def test_a_leader_whose_lease_was_taken_stops(client: Client) -> None:
    """Whatever the cause."""
    election = Election(client, "a", "s")
    await election.acquire()
    lease = msgspec.json.decode(await client.request("GET", LEASE))
    lease["spec"]["holderIdentity"] = "thief"
    await client.request("PUT", LEASE, msgspec.json.encode(lease))
    with pytest.raises(LeadershipLost, match="another"):
        await election.keep()


async def test_a_conflict_does_not_end_leadership(client: Client, server: ApiServer) -> None:
    """Somebody only wrote to the lease, a label perhaps: the next read shows who holds it."""
    election = Election(client, "a", "s")
    await election.acquire()
    server.faults.plan(Fault("PUT", "/leases/", "answer", times=2, code=409))
    keeping = asyncio.create_task(election.keep())
    done, _ = await asyncio.wait({keeping}, timeout=1.5)
    assert (done, election.leads, len(server.faults.planned)) == (set(), True, 0)
    server.faults.plan(Fault("PUT", "/leases/", "answer", times=1000, code=409))
    with pytest.raises(LeadershipLost):
        await keeping
    assert not election.leads


async def test_many_candidates_elect_one(client: Client) -> None:
    """They race for the same creation; the resource version decides."""
    candidates = [asyncio.create_task(Election(client, f"c{number}", "s").acquire()) for number in range(8)]
    done, waiting = await asyncio.wait(candidates, timeout=0.6)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert len(done) == 1


async def test_a_lease_that_ran_out_was_taken_over_though_the_answer_was_lost(
    client: Client, server: ApiServer
) -> None:
    """The write turns out to be there already: the other leader's last Binding must be waited for all the same."""
    await Election(client, "a", "s").acquire()
    server.faults.plan(Fault("PUT", "/leases/", "drop_after"))
    async with asyncio.timeout(10):
        assert await Election(client, "b", "s").acquire() is True
    assert (await _spec(client))["holderIdentity"] == "b"


async def test_leadership_ends_by_the_clock_alone(client: Client) -> None:
    """Also without a renewal loop, as after a halt: the check before a write notices."""
    election = Election(client, "a", "s")
    with pytest.raises(LeaseUnsure):
        election.check()
    began = asyncio.get_running_loop().time()
    await election.acquire()
    election.check()
    async with asyncio.timeout(10):
        while election.leads:
            await asyncio.sleep(0.01)
    assert asyncio.get_running_loop().time() - began < 1.0
    with pytest.raises(LeaseUnsure):
        election.check()


async def test_nothing_may_be_written_after_the_release(client: Client) -> None:
    """The next leader does not wait: it must be able to rely on that."""
    election = Election(client, "a", "s")
    await election.acquire()
    await election.release()
    with pytest.raises(LeaseUnsure):
        election.check()
