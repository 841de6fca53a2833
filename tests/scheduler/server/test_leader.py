"""One leader at a time, by a Lease."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from devcluster.apiserver.http.faults import Fault
from mooring.kube.client import Client
from scheduler.server import leader
from scheduler.server.leader import Election, LeadershipLoss, LeaseUnsure
from tests.scheduler.server.cluster import Cluster, beside
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
        end = self.now + seconds
        while self.now < end:
            await asyncio.sleep(self.TICK_S)


@pytest.fixture(autouse=True)
async def clock(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Clock]:
    """Let a lease last a second of this clock, to be renewed every tenth."""
    clock = Clock()
    monkeypatch.setattr(leader, "LEASE_S", 1)
    monkeypatch.setattr(leader, "RENEW_WITHIN_S", 0.7)
    monkeypatch.setattr(leader, "RETRY_S", 0.1)
    monkeypatch.setattr(leader, "time", SimpleNamespace(monotonic=lambda: clock.now))
    async with beside(clock.run()):
        yield clock


@pytest.fixture
async def election(client: Client) -> Election:
    """Give a candidate that leads."""
    election = Election(client, "a", "s")
    assert await election.acquire() is False
    return election


@pytest.fixture
def rival(client: Client) -> Election:
    return Election(client, "b", "s")


async def _spec(cluster: Cluster) -> Any:
    return (await cluster.call("GET", LEASE))["spec"]


async def test_the_first_candidate_leads_and_the_second_waits(
    election: Election, rival: Election, cluster: Cluster, clock: Clock
) -> None:
    """A lease that nobody held is not taken over from anybody."""
    async with beside(rival.acquire()) as (waiting,):
        async with beside(election.keep()) as (keeping,):
            await clock.passes(2)
            assert (waiting.done(), keeping.done()) == (False, False)
        async with asyncio.timeout(90):
            assert await waiting is True
    spec = await _spec(cluster)
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("b", 1)


@pytest.mark.parametrize("is_released", [True, False])
async def test_the_next_leader_knows_whether_the_lease_was_released_or_ran_out(
    election: Election, rival: Election, cluster: Cluster, is_released: bool
) -> None:
    """One that ran out is taken over, though the answer to that is lost: the last Binding must be waited for.

    Nothing may be written after a release, so nobody need wait.
    """
    if is_released:
        await election.release()
        with pytest.raises(LeaseUnsure):
            election.check()
    cluster.plan(Fault("PUT", "/leases/", "drop_after"))
    async with asyncio.timeout(90):
        assert await rival.acquire() is not is_released
    assert (await _spec(cluster))["holderIdentity"] == "b"


@pytest.mark.parametrize(
    ("fault", "spec", "halt_s", "reason"),
    [
        pytest.param(Fault("GET", "/leases/", "answer", times=1000, code=503), {}, 0.0, "lease 's'", id="no answer"),
        pytest.param(Fault("PUT", "/leases/", "answer", times=1000, code=409), {}, 0.0, "lease 's'", id="conflicts"),
        pytest.param(None, {"holderIdentity": "thief"}, 0.0, "another", id="lease taken"),
        # Nobody took the lease meanwhile, and the API server would allow it: what it knows of the cluster is as old.
        pytest.param(None, {}, 5.0, "not renewed within", id="stood still"),
    ],
)
async def test_a_leader_that_cannot_renew_stops_before_the_lease_ends(
    election: Election, cluster: Cluster, clock: Clock, fault: Fault | None, spec: object, halt_s: float, reason: str
) -> None:
    """It gives up after less time than anybody waits before taking over."""
    renewed = (await cluster.patch(LEASE, spec=spec))["spec"]["renewTime"]
    cluster.plan(*([fault] if fault else []))
    clock.now += halt_s
    began = clock.now
    with pytest.raises(LeadershipLoss, match=reason):
        await election.keep()
    assert clock.now - began < 1.0
    assert not election.leads
    cluster.server.faults.planned.clear()
    assert (await _spec(cluster))["renewTime"] == renewed


async def test_a_conflict_ends_no_leader(election: Election, cluster: Cluster, clock: Clock) -> None:
    """Somebody only wrote to the lease, a label perhaps: the next look shows who holds it."""
    cluster.plan(Fault("PUT", "/leases/", "answer", times=2, code=409))
    async with beside(election.keep()) as (keeping,):
        await clock.passes(1.5)
        assert (keeping.done(), election.leads, cluster.server.faults.planned) == (False, True, [])


async def test_many_candidates_elect_one(client: Client, clock: Clock) -> None:
    """They race for the same creation; the resource version decides."""
    async with beside(*(Election(client, f"c{number}", "s").acquire() for number in range(8))) as tasks:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await clock.passes(0.6)
        assert [task.done() for task in tasks].count(False) == 7


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


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"kind":"Lease","metadata":{"name":"s"},"spec":{}}', b'{"kind":"Status","code":404,"reason":"NotFound"}'],
)
async def test_a_lease_that_is_not_whole_is_not_taken_from_its_leader(
    body: bytes, election: Election, rival: Election, cluster: Cluster, clock: Clock
) -> None:
    """It would name no holder and no version: the write that takes it would have no precondition."""
    async with beside(election.keep()):
        cluster.plan(Fault("GET", "/leases/", "body", times=3, code=200, body=body))
        async with beside(rival.acquire()) as (acquiring,):
            await until(lambda: not cluster.server.faults.planned)
            await clock.passes(1)
            assert not acquiring.done()
            assert (await _spec(cluster))["holderIdentity"] == "a"
