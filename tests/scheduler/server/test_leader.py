"""One leader at a time, by a Lease."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.serve import ApiServer
from mooring.kube.client import Client
from scheduler.server import leader
from scheduler.server.leader import Election, LeadershipLoss, LeaseUnsure
from tests.scheduler.server.cluster import Cluster
from tests.support.polling import until

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/s"


class Clock:
    """The candidates' clock: it goes on by rounds of the event loop, so a machine that halts halts it too."""

    TICK_S = 0.005

    def __init__(self) -> None:
        self.now = 1000.0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.TICK_S)
            self.now += self.TICK_S

    async def passes(self, seconds: float) -> None:
        """Return when so much time has passed."""
        until = self.now + seconds
        while self.now < until:
            await asyncio.sleep(self.TICK_S)


@pytest.fixture(autouse=True)
async def clock(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Clock]:
    """Let a lease last a second of this clock, to be renewed every tenth."""
    clock = Clock()
    monkeypatch.setattr(leader, "LEASE_S", 1)
    monkeypatch.setattr(leader, "RENEW_WITHIN_S", 0.7)
    monkeypatch.setattr(leader, "RETRY_S", 0.1)
    monkeypatch.setattr(leader, "time", SimpleNamespace(monotonic=lambda: clock.now))
    running = asyncio.create_task(clock.run())
    yield clock
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.fixture
async def election(client: Client) -> Election:
    """Give a candidate that leads."""
    election = Election(client, "a", "s")
    assert await election.acquire() is False
    return election


async def _spec(cluster: Cluster) -> Any:
    return (await cluster.call("GET", LEASE))["spec"]


async def _cancel(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_first_candidate_leads_and_the_second_waits(
    election: Election, cluster: Cluster, clock: Clock
) -> None:
    """A lease that nobody held is not taken over from anybody."""
    waiting = asyncio.create_task(Election(cluster.client, "b", "s").acquire())
    keeping = asyncio.create_task(election.keep())
    await clock.passes(2)
    assert (waiting.done(), keeping.done()) == (False, False)
    await _cancel(keeping)
    async with asyncio.timeout(90):
        assert await waiting is True
    spec = await _spec(cluster)
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("b", 1)


async def test_a_released_lease_is_taken_at_once(election: Election, client: Client) -> None:
    """And counts as released, not as taken over: nothing may be written after the release, so nobody need wait."""
    await election.release()
    with pytest.raises(LeaseUnsure):
        election.check()
    async with asyncio.timeout(90):
        assert await Election(client, "b", "s").acquire() is False


async def test_a_leader_that_cannot_renew_stops_before_the_lease_ends(
    election: Election, server: ApiServer, clock: Clock
) -> None:
    """It gives up after less time than anybody waits before taking over."""
    server.faults.plan(Fault("GET", "/leases/", "answer", times=1000, code=503))
    began = clock.now
    with pytest.raises(LeadershipLoss):
        await election.keep()
    assert clock.now - began < 1.0


async def test_a_leader_whose_lease_was_taken_stops(election: Election, cluster: Cluster) -> None:
    """Whatever the cause."""
    await cluster.patch(LEASE, spec={"holderIdentity": "thief"})
    with pytest.raises(LeadershipLoss, match="another"):
        await election.keep()


async def test_a_conflict_ends_no_leader(election: Election, server: ApiServer, clock: Clock) -> None:
    """Somebody only wrote to the lease, a label perhaps: who holds it the next look tells."""
    server.faults.plan(Fault("PUT", "/leases/", "answer", times=2, code=409))
    keeping = asyncio.create_task(election.keep())
    await clock.passes(1.5)
    assert (keeping.done(), election.leads, len(server.faults.planned)) == (False, True, 0)
    server.faults.plan(Fault("PUT", "/leases/", "answer", times=1000, code=409))
    with pytest.raises(LeadershipLoss):
        await keeping
    assert not election.leads


async def test_many_candidates_elect_one(client: Client, clock: Clock) -> None:
    """They race for the same creation; the resource version decides."""
    tasks = [asyncio.create_task(Election(client, f"c{number}", "s").acquire()) for number in range(8)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await clock.passes(0.6)
    waiting = [task for task in tasks if not task.done()]
    await _cancel(*waiting)
    assert len(waiting) == 7


@pytest.mark.usefixtures("election")
async def test_a_lease_that_ran_out_was_taken_over_though_the_answer_was_lost(
    cluster: Cluster, server: ApiServer
) -> None:
    """The write turns out to be there already: the other leader's last Binding must be waited for all the same."""
    server.faults.plan(Fault("PUT", "/leases/", "drop_after"))
    async with asyncio.timeout(90):
        assert await Election(cluster.client, "b", "s").acquire() is True
    assert (await _spec(cluster))["holderIdentity"] == "b"


async def test_leadership_ends_by_the_clock_alone(client: Client, clock: Clock) -> None:
    """Also where nobody comes to look, as after a halt: the check before a write sees it."""
    election = Election(client, "a", "s")
    with pytest.raises(LeaseUnsure):
        election.check()
    began = clock.now
    await election.acquire()
    election.check()
    await until(lambda: not election.leads)
    assert clock.now - began < 1.0
    with pytest.raises(LeaseUnsure):
        election.check()


async def test_a_leader_that_stood_still_until_its_lease_ran_out_does_not_renew_it(
    election: Election, cluster: Cluster, clock: Clock
) -> None:
    """Nobody took the lease meanwhile, and the API server would let it: what it knows of the cluster is as old."""
    clock.now += 5.0
    renewed = (await _spec(cluster))["renewTime"]
    with pytest.raises(LeadershipLoss, match="not renewed within"):
        async with asyncio.timeout(30):
            await election.keep()
    assert (await _spec(cluster))["renewTime"] == renewed


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"kind":"Lease","metadata":{"name":"s"},"spec":{}}',
        b'{"kind":"Status","metadata":{},"status":"Failure","code":404,"reason":"NotFound"}',
    ],
)
async def test_a_lease_that_is_not_whole_is_not_taken_from_its_leader(
    body: bytes, election: Election, cluster: Cluster, server: ApiServer, clock: Clock
) -> None:
    """It would name no holder and no version: the write that takes it would have no precondition."""
    keeping = asyncio.create_task(election.keep())
    server.faults.plan(Fault("GET", "/leases/", "body", times=3, code=200, body=body))
    acquiring = asyncio.create_task(Election(cluster.client, "b", "s").acquire())
    await until(lambda: not server.faults.planned)
    await clock.passes(1)
    assert not acquiring.done()
    assert (await _spec(cluster))["holderIdentity"] == "a"
    await _cancel(acquiring, keeping)
