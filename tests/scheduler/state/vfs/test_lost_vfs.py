"""With ``--evict-lost-vfs`` running pods whose VFs are lost are evicted, whole groups together; without it, none is."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from mooring.annotations.inventory import LOST, Out
from mooring.indexes import Indexes
from scheduler.cycle.instructions import Evict, Instruction, Report
from scheduler.kube.objects import Pod
from scheduler.state.machine import Machine
from scheduler.state.vfs.lost_vfs import LostVfOptions
from tests.scheduler.group_life import TRAIN, Life, binds, changed, identity

AFTER_S = 120.0
EVICTS = LostVfOptions(after_s=AFTER_S, per_minute=2)
RUNS: dict[str, Any] = {"status": {"phase": "Running"}}
GOES: dict[str, Any] = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.fixture(params=[EVICTS])
def life(request: pytest.FixtureRequest, life: Life) -> Iterator[Life]:
    life = life.successor(Machine("mooring", lost_vf_options=request.param))
    yield life
    life.machine.check()


@pytest.fixture
def alone(life: Life) -> Pod:
    """Let a pod run alone on n1."""
    life.nodes("n1")
    (pod,) = running(life, life.make_pod("a", [{}, {}]))
    return pod


@pytest.fixture
def members(life: Life) -> list[Pod]:
    """Let a group of three run."""
    life.nodes("n1", "n2", "n3")
    return running(life, *(life.member(f"m{number}") for number in range(3)))


def running(life: Life, *pods: Pod) -> list[Pod]:
    """Place pods on nodes of two VFs each, and let them run."""
    life.see(*pods)
    started = [changed(pod, **RUNS) for pod in life.bound(*binds(life.work()))]
    life.see(*started)
    return started


def publish(life: Life, name: str, **fields: Any) -> None:
    """Publish a node's PF anew."""
    life.show_node(name, life.make_pf(**({"vfs": 2} | fields)))


def orders(life: Life, later_s: float = 0.0) -> list[Evict]:
    return [one for one in life.work(later_s) if isinstance(one, Evict)]


def finish(life: Life, decided: Iterable[Evict], *evicted: str) -> None:
    """Let the API server evict the named pods, and refuse the others."""
    for order in decided:
        life.machine.finished(order, "evicted" if order.pod.metadata.name in evicted else "refused", life.now)


def evicted(found: Iterable[Instruction]) -> dict[str, str]:
    """Return the reason of each eviction, by the pod's name."""
    return {one.pod.metadata.name: one.reason for one in found if isinstance(one, Evict) and one.cause == "LostVfs"}


BACK = (Out(Indexes.of([0]), f"{LOST}on the host although pod uid-a holds it"),)
OUT = (Out(Indexes.of([0]), "bound to vfio-pci"),)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"vfs": 0}, "VF 0000:04:00.2 (pf0/0) no longer exists"),
        ({"up": False}, "VF 0000:04:00.2 (pf0/0) has no network: the link of its PF is down"),
        ({"out": BACK}, "VF 0000:04:00.2 (pf0/0) is back in the host's network namespace"),
        ({"out": OUT}, "VF 0000:04:00.2 (pf0/0) cannot be used: bound to vfio-pci"),
    ],
)
def test_a_running_pod_is_evicted_once_its_vfs_have_been_lost_for_the_time(
    life: Life, alone: Pod, fields: dict[str, Any], why: str
) -> None:
    """Not a second before, whatever the node publishes meanwhile; its owner is told which VF, and why."""
    publish(life, "n1", **fields)
    assert life.machine.next_due() == AFTER_S
    assert evicted(life.work(AFTER_S - 1.0)) == {}
    publish(life, "n1", **fields, numa=1)
    found = life.work(1.0)
    assert evicted(found) == {"a": f"{why}, for 120 s"}
    (order,) = (one for one in found if isinstance(one, Evict))
    (report,) = life.machine.finished(order, "evicted", life.now)
    assert isinstance(report, Report)
    assert (report.reason, report.message) == ("LostVfs", f"evicted: {why}, for 120 s")
    assert evicted(life.work(10 * AFTER_S)) == {}


@pytest.mark.parametrize("life", [LostVfOptions()], indirect=True)
def test_without_the_option_nobody_is_evicted(life: Life, alone: Pod) -> None:
    publish(life, "n1", up=False)
    assert life.machine.next_due() is None
    assert evicted(life.work(1e6)) == {}


def test_a_vf_that_comes_back_in_time_is_no_loss(life: Life, alone: Pod) -> None:
    """Neither is one of a node of which nothing fresh is known: the time starts again."""
    publish(life, "n1", up=False)
    life.work(AFTER_S - 1.0)
    publish(life, "n1")
    assert evicted(life.work(2.0)) == {}
    publish(life, "n1", up=False)
    life.work(AFTER_S - 1.0)
    life.nodes("n1", ready=False)
    publish(life, "n1", up=False)
    assert evicted(life.work(2.0)) == {}
    assert list(evicted(life.work(AFTER_S))) == ["a"]


def test_the_placed_members_of_its_group_go_with_it(life: Life) -> None:
    """Ranks wait for each other, on whatever node; those of another group and those that leave by themselves stay."""
    life.nodes("n1", "n2", "n3", "n4")
    first = running(life, *(life.member(f"m{number}") for number in range(3)))
    running(life, life.make_pod("alone", [{}, {}]))
    life.see(changed(first[1], **GOES))
    publish(life, first[0].spec.node_name or "", up=False)
    about = "VF 0000:04:00.2 (pf0/0) has no network: the link of its PF is down, for 120 s"
    assert evicted(life.work(AFTER_S)) == {"m0": about, "m2": f"pod default/m0 of the same group: {about}"}


@pytest.mark.parametrize(
    ("fields", "others"), [('"min":2', []), ('"min":3,"disruption":"pod"', []), ('"min":3', ["m1", "m2"])]
)
def test_a_member_that_its_group_can_spare_goes_alone(life: Life, fields: str, others: list[str]) -> None:
    """As for preemption: one beyond ``min``, or one of a group whose pods go one by one."""
    life.nodes("n1", "n2", "n3")
    first, *_ = running(life, *(life.member(f"m{number}", f'{{"name":"train",{fields}}}') for number in range(3)))
    publish(life, first.spec.node_name or "", up=False)
    assert sorted(evicted(life.work(AFTER_S))) == ["m0", *others]


def test_only_so_many_are_evicted_in_a_minute(life: Life) -> None:
    """A group counts as one; those that wait keep their turn."""
    life.nodes(*(f"n{number}" for number in range(6)))
    running(life, *(life.make_pod(f"p{number}", [{}, {}]) for number in range(3)))
    running(life, *(life.member(f"m{number}") for number in range(3)))
    for number in range(6):
        publish(life, f"n{number}", up=False)
    gone = []
    for later_s in (AFTER_S, 59.0, 1.1):
        decided = orders(life, later_s)
        gone.append(sorted(evicted(decided)))
        finish(life, decided, *evicted(decided))
    assert gone[1] == []
    together = sorted(gone[0] + gone[2])
    assert together == ["m0", "m1", "m2", "p0", "p1", "p2"]
    assert {len(gone[0]), len(gone[2])} == {2, 4}


@pytest.mark.parametrize(
    ("nodes", "pods", "turns"), [(2, 4, [["n1", "n2"]] * 2), (3, 6, [["n1", "n2"], ["n3", "n1"], ["n2", "n3"]])]
)
def test_nodes_that_have_lost_all_their_vfs_take_turns(
    life: Life, nodes: int, pods: int, turns: list[list[str]]
) -> None:
    """One may lie of its own VFs: then its own pods are evicted, two in a minute. No turn is lost in the next one."""
    names = [f"n{number}" for number in range(1, nodes + 1)]
    life.nodes(*names)
    started = running(life, *(life.make_pod(f"p{number}", [{}]) for number in range(pods)))
    node_of = {pod.metadata.name: pod.spec.node_name for pod in started}
    for name in names:
        publish(life, name, up=False)
        life.work(1.0)
    for number, nodes_of_turn in enumerate(turns):
        decided = orders(life, 60.1 if number else AFTER_S)
        assert [node_of[name] for name in evicted(decided)] == nodes_of_turn
        finish(life, decided, *evicted(decided))


def test_what_is_refused_of_a_group_is_ordered_again_whatever_became_of_the_others(
    life: Life, members: list[Pod]
) -> None:
    """A minute later, and ten times: what is left then may have become whole with new members."""
    publish(life, members[0].spec.node_name or "", up=False)
    decided = orders(life, AFTER_S)
    assert len(decided) == 3
    finish(life, decided, "m0")
    life.gone(members[0])
    assert evicted(life.work(59.0)) == {}
    times = 0
    while again := evicted(life.work(60.0)):
        assert sorted(again) == ["m1", "m2"]
        times += 1
    assert times == 9


@pytest.mark.parametrize("life", [LostVfOptions(after_s=AFTER_S, dry_run=True)], indirect=True)
def test_a_dry_run_tells_each_once_and_evicts_nobody(life: Life, alone: Pod) -> None:
    publish(life, "n1", up=False)
    (report,) = life.work(AFTER_S)
    assert isinstance(report, Report)
    assert (report.pod.key, report.reason) == (alone.key, "LostVfs")
    assert report.message.startswith("would be evicted (dry run): VF 0000:04:00.2 (pf0/0) has no network")
    assert life.work(10 * AFTER_S) == []


def test_a_pod_that_never_started_leaves_or_is_gone_is_not_looked_at(life: Life) -> None:
    """The first is `NeverStarts`' business; the others nobody's."""
    life.nodes("n1", "n2")
    life.see(life.make_pod("waits", [{}, {}]))
    life.bound(*binds(life.work()))
    life.nodes("n3")
    (pod,) = running(life, life.make_pod("runs", [{}, {}]))
    (leaves,) = running(life, life.make_pod("leaves", [{}, {}]))
    life.see(changed(leaves, **GOES))
    for name in ("n1", "n2", "n3"):
        publish(life, name, up=False)
    life.gone(pod)
    assert identity(pod).uid not in life.machine.cache.uids()
    assert evicted(life.work(10 * AFTER_S)) == {}


@pytest.mark.parametrize("life", [LostVfOptions(after_s=10.0)], indirect=True)
def test_a_pod_whose_vfs_are_lost_again_is_evicted_for_its_newest_loss_only(life: Life, alone: Pod) -> None:
    """A minute after each rejection, not twice in a minute."""
    times = []
    for now in range(200):
        if now in (0, 20):
            publish(life, "n1", up=False)
        if now == 15:
            publish(life, "n1")
        decided = orders(life)
        times += [now] * len(decided)
        finish(life, decided)
        life.now += 1.0
    assert times == [10, 30, 90, 150]


@pytest.mark.parametrize("life", [LostVfOptions(after_s=10.0)], indirect=True)
def test_members_that_leave_already_are_evicted_for_the_newest_loss_of_their_group_only(
    life: Life, members: list[Pod]
) -> None:
    """One of them is gone, so the others are evicted whatever becomes of the VFs, but each once a minute."""
    node, times = members[0].spec.node_name or "", list[tuple[int, str]]()
    for now in range(100):
        if now in (0, 20):
            publish(life, node, up=False)
        if now == 15:
            publish(life, node)
        decided = orders(life)
        times += [(now, order.pod.metadata.name) for order in decided]
        finish(life, decided, "m2")
        if now == 12:
            life.gone(members[2])
        life.now += 1.0
    assert times == [(10, "m0"), (10, "m1"), (10, "m2"), (30, "m0"), (30, "m1"), (90, "m0"), (90, "m1")]


@pytest.mark.parametrize("names", [["m0"], ["m0", "m1", "m2"]], ids=["a pod", "a group"])
def test_what_could_not_be_evicted_stays_when_its_vf_comes_back(life: Life, names: list[str]) -> None:
    """Such as for a disruption budget. Once one member is gone the others go too, whatever becomes of the link."""
    life.nodes("n1", "n2", "n3")
    first, *_ = running(life, *(life.member(name, TRAIN if len(names) == 3 else "") for name in names))
    node = first.spec.node_name or ""
    publish(life, node, up=False)
    finish(life, orders(life, AFTER_S))
    publish(life, node)
    assert evicted(life.work(61.0)) == {}
    publish(life, node, up=False)
    decided = orders(life, AFTER_S)
    assert sorted(evicted(decided)) == names
    finish(life, decided, "m2")
    publish(life, node)
    assert sorted(evicted(life.work(61.0))) == (["m0", "m1"] if len(names) == 3 else [])
