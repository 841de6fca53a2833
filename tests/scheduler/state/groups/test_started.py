"""A group that has started takes in members that are made again, one by one, as long as it lives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from mooring.kube.events import Changed, Identity, Removed, Synced
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome
from scheduler.kube.workload_objects import Job
from scheduler.state.machine import Machine
from tests.scheduler.group_life import HINT, Life, annotated, binds, bound_names, changed, changed_event, told

NODES = ("n1", "n2", "n3", "n4")
FOUR = '{"name":"train","min":4}'
Lead = Callable[[Sequence[Pod]], Life]


def _clock(life: Life) -> str:
    return f"2026-01-01T{int(life.now) // 3600:02}:{int(life.now) // 60 % 60:02}:{int(life.now) % 60:02}Z"


@dataclass
class Ranks:
    """A job's pods as the API server shows them: their times are its own, and each names its controller."""

    life: Life
    owner: str = "job-1"
    group: str = FOUR
    pods: dict[str, Pod] = field(default_factory=dict)

    def make(self, *names: str, **fields: Any) -> list[Pod]:
        owners = [{"name": "train", "kind": "Job", "uid": self.owner, "controller": True}] if self.owner else None
        metadata = {"creationTimestamp": _clock(self.life), "ownerReferences": owners}
        pods = [self.life.member(name, self.group, metadata=metadata, **fields) for name in names]
        self.show(*pods)
        return pods

    def show(self, *pods: Pod) -> None:
        self.life.see(*pods)
        self.pods |= {pod.metadata.name: pod for pod in pods}

    def go(self, later_s: float = 5.0) -> list[str]:
        """Let all be bound that is decided; return their names."""
        found = binds(self.life.work(later_s))
        self.bound(found)
        return bound_names(found)

    def bound(self, found: Sequence[Bind]) -> None:
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": _clock(self.life)}
        self.show(*(changed(pod, status={"conditions": [scheduled]}) for pod in self.life.bound(*found)))

    def end(self, phase: str, *names: str) -> None:
        self.show(*(changed(self.pods[name], status={"phase": phase}) for name in names))

    def delete(self, *names: str) -> None:
        self.life.gone(*(self.pods.pop(name) for name in names))

    def succeeded(self, count: int) -> None:
        """Show what the Job says."""
        document = {"metadata": {"name": "train", "uid": self.owner}, "status": {"succeeded": count}}
        event = Changed(Identity("train", "default", self.owner), msgspec.convert(document, Job))
        self.life.machine.handle(Job, event, self.life.now)

    def lead(self, *, reverse: bool = False) -> "Ranks":
        """Let another scheduler start, which is shown only what there is."""
        life = self.life
        other = life.successor()
        other.now = life.now
        other.nodes(*NODES)
        ranks = Ranks(other, self.owner, self.group)
        ranks.show(*list(self.pods.values())[:: -1 if reverse else 1])
        return ranks


@pytest.fixture(params=["job-1", ""], ids=["of a Job", "bare"])
def ranks(request: pytest.FixtureRequest, life: Life) -> Ranks:
    """Return four ranks that have started."""
    return _start(life, request.param)


@pytest.fixture
def job(life: Life) -> Ranks:
    return _start(life, "job-1")


def _start(life: Life, owner: str) -> Ranks:
    life.nodes(*NODES)
    ranks = Ranks(life, owner)
    ranks.make("r0", "r1", "r2", "r3")
    assert ranks.go() == ["r0", "r1", "r2", "r3"]
    life.now += 600
    return ranks


SAME_OR_NEW = pytest.mark.parametrize("change", ["", "leader", "leader, shown backwards"])


def _after(ranks: Ranks, change: str) -> Ranks:
    return ranks.lead(reverse="backwards" in change) if change else ranks


@SAME_OR_NEW
@pytest.mark.parametrize(
    ("done", "failed"),
    [("r0 r1", "r3"), ("r0 r1 r2", "r3"), ("r0 r1 r2 r3", ""), ("", "r2 r3")],
    ids=["one fails after two are done", "the last one fails", "more completions than parallelism", "two fail"],
)
def test_one_that_comes_again_or_next_is_placed_alone(ranks: Ranks, change: str, done: str, failed: str) -> None:
    """Those that failed count beside those that run: two do not wait for each other."""
    ranks.end("Succeeded", *done.split())
    ranks.end("Failed", *failed.split())
    ranks = _after(ranks, change)
    ranks.make("again")
    assert ranks.go() == ["again"]


@SAME_OR_NEW
def test_done_ranks_count_when_their_pods_are_deleted_as_long_as_the_job_says_so(job: Ranks, change: str) -> None:
    job.end("Succeeded", "r0", "r1", "r2")
    job.succeeded(3)
    job.delete("r0", "r1", "r2")
    job.end("Failed", "r3")
    job = _after(job, change)
    if change:
        job.make("again")
        assert job.go() == []
    job.succeeded(3)
    if not change:
        job.make("again")
    assert job.go() == ["again"]


def test_a_group_lives_no_more_when_the_job_is_gone(job: Ranks) -> None:
    for event in (Removed(Identity("train", "default", "job-1")), Synced[Job](())):
        job.succeeded(4)
        job.end("Succeeded", *job.pods)
        job.delete(*job.pods)
        job.life.machine.handle(Job, event, job.life.now)
        job.make("r0", "r1", "r2")
        assert job.go() == []
        job.make("r3")
        assert len(job.go()) == 4


def test_a_node_whose_clock_is_a_day_off_does_not_matter(ranks: Ranks) -> None:
    """What its kubelet writes is not read."""
    for day in ("2025-12-31", "2026-01-02"):
        ended = {"state": {"terminated": {"finishedAt": f"{day}T00:00:00Z"}}}
        done = changed(ranks.pods["r0"], status={"phase": "Succeeded", "containerStatuses": [ended]})
        ranks.show(changed(done, status={"startTime": f"{day}T00:00:00Z"}))
        leader = ranks.lead()
        leader.end("Failed", "r1")
        leader.make(f"again-{day}")
        assert leader.go() == [f"again-{day}"]


@SAME_OR_NEW
def test_when_all_have_failed_the_group_starts_as_a_whole_again(ranks: Ranks, change: str) -> None:
    ranks.end("Failed", "r0", "r1", "r2", "r3")
    ranks = _after(ranks, change)
    ranks.make("b0", "b1", "b2")
    assert ranks.go() == []
    ranks.make("b3")
    assert ranks.go() == ["b0", "b1", "b2", "b3"]


@SAME_OR_NEW
@pytest.mark.parametrize("others", [("r0", "r1", "r2", "r3"), ("r0", "r1", "r2")], ids=["completed", "one still runs"])
def test_a_rerun_under_the_same_name_starts_together(job: Ranks, change: str, others: Sequence[str]) -> None:
    """Pods of the old Job that have completed do not count for the new one; one that runs does, as any member."""
    job.end("Succeeded", *others)
    job = _after(job, change)
    job.succeeded(len(others))
    job.owner, running = "job-2", 4 - len(others)
    job.make(*(f"b{number}" for number in range(3 - running)))
    found = job.life.work(5.0)
    assert binds(found) == []
    (message,) = set(told(found).values())
    assert message.startswith(
        f"group train: 3 of at least 4 members exist, {len(others)} succeeded under another controller"
    )
    job.make("b3")
    assert len(job.go()) == 4 - running


def test_a_rank_of_the_old_run_joins_it_though_the_new_run_is_incomplete(job: Ranks) -> None:
    """The new ones wait for each other, and are told so when the old one is placed."""
    job.end("Failed", "r3")
    job.make("again")
    rerun = Ranks(job.life, "job-2")
    rerun.make("b0")
    job.end("Succeeded", "r0", "r1")
    found = job.life.work(0.0)
    assert bound_names(found) == ["again"]
    job.life.bound(*binds(found))
    assert told(job.life.work(5.0)) == {
        "b0": f"group train: 3 of at least 4 members exist, 2 succeeded under another controller (not counted) ({HINT})"
    }


def test_new_ones_that_come_while_it_is_decided_about_wait_for_each_other(life: Life) -> None:
    job = _start(life.successor(Machine("mooring", portion=1)), "job-1")
    job.end("Failed", "r2", "r3")
    job.make("again-0", "again-1")
    rerun = Ranks(job.life, "job-2")
    assert job.life.machine.step(job.life.now) == []
    rerun.make("b0")
    job.end("Succeeded", "r0", "r1")
    found = job.life.work()
    assert len(binds(found)) == 2
    assert "b0" in told(found + job.life.work(5.0))


@pytest.fixture
def jobs(life: Life) -> tuple[Ranks, Ranks]:
    """Return two Jobs of one group that have started together."""
    life.nodes(*NODES)
    first, second = Ranks(life, "job-1"), Ranks(life, "job-2")
    first.make("a0", "a1")
    second.make("b0", "b1")
    assert first.go() == ["a0", "a1", "b0", "b1"]
    second.pods = {name: first.pods.pop(name) for name in ("b0", "b1")}
    life.now += 600
    first.end("Succeeded", "a0", "a1")
    return first, second


@pytest.mark.parametrize(
    ("change", "failed"),
    [("", ["b1"]), ("leader", ["b1"]), ("leader, shown backwards", ["b1"]), ("", ["b0", "b1"])],
)
def test_ranks_of_a_job_come_again_after_another_job_of_the_group_is_complete(
    jobs: tuple[Ranks, Ranks], change: str, failed: list[str]
) -> None:
    """The group lives through what the other Job has done."""
    first, second = jobs
    second.end("Failed", *failed)
    second.pods |= first.pods
    second = _after(second, change)
    again = [f"again-{name}" for name in failed]
    second.make(*again)
    assert second.go() == again


def test_a_new_leader_that_is_shown_no_live_member_waits_for_enough(jobs: tuple[Ranks, Ranks]) -> None:
    """The first Job may have been another start: nothing that lives connects the two."""
    first, second = jobs
    second.end("Failed", "b0", "b1")
    second.pods |= first.pods
    leader = second.lead()
    leader.make("again-b0", "again-b1")
    assert leader.go() == []
    leader.make("more-0", "more-1")
    assert len(leader.go()) == 4


def test_what_another_job_of_the_start_has_done_counts_for_how_many_are_missing(
    life: Life, jobs: tuple[Ranks, Ranks]
) -> None:
    first, second = jobs
    for name in ("a0", "a1"):
        life.remove_node(first.pods[name].spec.node_name or "")
    second.make("surplus")
    assert not life.is_urgent()
    lost = second.pods["b1"]
    life.remove_node(lost.spec.node_name or "")
    life.gone(lost)
    (message,) = set(told(life.work(5.0)).values())
    assert message.startswith("group train: 3 of at least 4 members are placed, and 0 of 1 others fit: ")


def _half_placed(life: Life, ranks: Ranks, *names: str) -> None:
    """Let two of these be bound; the Bindings of the rest are refused."""
    ranks.make(*names)
    decided = binds(life.work(5.0))
    assert len(decided) == len(names)
    ranks.bound(decided[:2])
    for bind in decided[2:]:
        life.machine.finished(bind, Outcome("changed", ""), life.now)


@SAME_OR_NEW
@pytest.mark.parametrize("has_failed_before", [False, True])
def test_a_start_that_a_refused_binding_cuts_short_is_completed_as_a_whole(
    life: Life, change: str, has_failed_before: bool
) -> None:
    """Also after an attempt whose pods all failed: these show nothing about the new one."""
    life.nodes(*NODES)
    ranks = Ranks(life)
    if has_failed_before:
        ranks.make("f0", "f1", "f2", "f3")
        ranks.go()
        life.now += 600
        ranks.end("Failed", *ranks.pods)
    _half_placed(life, ranks, "r0", "r1", "r2", "r3")
    if not change:
        life.remove_node(NODES[-1])
        assert binds(life.work(20.0)) == []
        return
    leader = ranks.lead(reverse="backwards" in change)
    assert leader.life.is_urgent()
    leader.life.remove_node(NODES[-1])
    found = leader.life.work(1.0)
    assert binds(found) == []
    assert all("2 of at least 4 members are placed, and 1 of 2 others fit" in one for one in told(found).values())
    leader.life.nodes(NODES[-1])
    assert len(binds(leader.life.work(20.0))) == 2


def test_members_that_were_deleted_count_only_for_one_that_has_seen_them(ranks: Ranks) -> None:
    """A new leader, which is not shown that enough were placed, waits for enough."""
    ranks.delete("r2", "r3")
    ranks.end("Failed", "r1")
    leader = ranks.lead()
    ranks.make("again")
    assert ranks.go() == ["again"]
    leader.make("again", "more")
    assert leader.go() == []
    leader.make("enough")
    assert len(leader.go()) == 3


def test_a_pod_that_comes_to_a_group_with_a_node_neither_starts_it_nor_makes_it_half_placed(life: Life) -> None:
    life.nodes(*NODES)
    lone = [life.member(f"lone-{number}", "", node=node) for number, node in enumerate(NODES[:3])]
    life.see(*lone)
    moved = [annotated(pod, {"mooring.dev/group": FOUR}) for pod in lone]
    life.see(*moved)
    life.see(*(changed(pod, status={"phase": "Failed"}) for pod in moved[:2]))
    ranks = Ranks(life, "")
    ranks.make("r0", "r1")
    assert ranks.go() == []
    assert not life.is_urgent()
    ranks.make("r2")
    assert len(ranks.go()) == 3


def test_nor_does_it_complete_a_start_that_was_cut_short(life: Life) -> None:
    life.nodes(*NODES)
    ranks = Ranks(life, "")
    _half_placed(life, ranks, "r0", "r1", "r2", "r3")
    for number in range(2):
        lone = life.member(f"lone-{number}", "", node=f"other-{number}")
        moved = annotated(lone, {"mooring.dev/group": FOUR})
        life.see(lone, moved, changed(moved, status={"phase": "Failed"}))
    life.remove_node(NODES[-1])
    assert binds(life.work(20.0)) == []


def test_a_relist_forgets_failed_members_that_are_gone(job: Ranks) -> None:
    job.end("Failed", "r3")
    failed = job.pods.pop("r3")
    there = tuple(changed_event(pod) for pod in job.pods.values())
    job.life.machine.handle(Pod, Synced(there), job.life.now)
    assert job.life.machine.group_cache.of(failed.metadata.uid) is None
