"""With ``--evict-lost-vfs`` running pods whose VFs are lost are evicted, whole groups together; without it, none is."""

import pytest

from scheduler.cycle.instructions import Evict, Report
from scheduler.kube.objects import Pod
from scheduler.state.machine import Machine
from scheduler.state.vfs.lost_vfs import LostVfOptions
from tests.scheduler.group_life import Life, binds, changed
from tests.scheduler.state.cluster import Cluster
from tests.scheduler.story import play

EVICTS = LostVfOptions(after_s=120.0, per_minute=2)


class Losses(Cluster):
    """Pods that want two VFs, which is all that a node has, and run where they are placed."""

    def run(self, *names: str, request: object = ({}, {})) -> str:
        """Let pods be placed and run; return their nodes."""
        return self._start([self.make_pod(name, request) for name in names])

    def small(self, *names: str) -> str:
        """Let pods with one VF be placed and run."""
        return self.run(*names, request=[{}])

    def group(self, fields: str, *names: str) -> str:
        return self._start([self.member(name, f'{{"name":"train",{fields}}}') for name in names])

    def gang(self, count: str, *names: str) -> str:
        """Let the pods of a PodGroup, each of which may be preempted alone, be placed and run."""
        self.pod_group("train", {}, schedulingPolicy={"gang": {"minCount": int(count)}})
        spec = {"schedulingGroup": {"podGroupName": "train"}}
        return self._start([self.make_pod(name, [{}, {}], spec=spec) for name in names])

    def unstarted(self, name: str) -> None:
        """Let a pod be placed that never starts."""
        self.place(self.make_pod(name, [{}, {}]))

    def down(self, *nodes: str) -> None:
        for node in nodes:
            self.node(node, "2", up="false")

    def wait(self, seconds: str = "15") -> str:
        """Let time pass; return the pods that are evicted then."""
        found = [one for one in self.work(float(seconds)) if isinstance(one, Evict)]
        assert all(one.cause == "LostVfs" for one in found)
        self.evictions = found or self.evictions
        return " ".join(one.pod.metadata.name for one in found)

    def reasons(self) -> str:
        return "; ".join(one.reason for one in self.evictions)

    def accept(self, *names: str) -> str:
        """Let the API server evict these of the ordered pods, and reject the others; return what is told."""
        answers = (self.evict("evicted" if pod in names else "refused", pod) for pod in self._ordered())
        return "; ".join(filter(None, answers))

    def obey(self) -> None:
        """Let the API server evict all."""
        self.accept(*self._ordered())

    def _ordered(self) -> list[str]:
        return [one.pod.metadata.name for one in self.evictions]

    def _start(self, pods: list[Pod]) -> str:
        self.see(*pods)
        started = [changed(pod, status={"phase": "Running"}) for pod in self.bound(*binds(self.work()))]
        self.show(*started)
        return " ".join(sorted(f"{pod.metadata.name}@{pod.spec.node_name}" for pod in started))


def losses(life: Life, options: LostVfOptions) -> Losses:
    return Losses(Machine("mooring", lost_vf_options=options), life.make_node, life.make_pf, life.make_pod)


DOWN = "VF 0000:04:00.2 (pf0/0) has no network: the link of its PF is down"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("1", "VF 0000:04:00.3 (pf0/1) no longer exists"),
        ("2 up=false", DOWN),
        (
            "2 out=0:lost:_on_the_host_although_pod_uid-a_holds_it",
            "VF 0000:04:00.2 (pf0/0) is back in the host's network namespace",
        ),
        ("2 out=0:bound_to_vfio-pci", "VF 0000:04:00.2 (pf0/0) cannot be used: bound to vfio-pci"),
    ],
)
def test_a_running_pod_is_evicted_once_its_vfs_have_been_lost_for_the_time(life: Life, words: str, why: str) -> None:
    """Not a second before, whatever the node publishes meanwhile; its owner is told which VF, and why."""
    story = f"""nodes n1 | run a > a@n1 | node n1 {words} | due > 120 | wait 119 | node n1 {words} numa=1 | wait 1 > a
        | reasons > {why}, for 120 s | accept a > a LostVfs: evicted: {why}, for 120 s | wait 1200"""
    play(losses(life, EVICTS), story)


RANKS = "nodes n1 n2 n3 | group {} m0 m1 m2 > m0@n1 m1@n2 m2@n3"
THREE = RANKS.format('"min":3')

STORIES = {
    "the reason is the newest one": f"""
        nodes n1 | run a > a@n1 | node n1 1 | wait 60 | down n1 | wait 60 > a | reasons > {DOWN}, for 120 s""",
    # Neither is one of a node of which nothing fresh is known: the time starts again.
    "a VF that comes back in time is no loss": """
        nodes n1 | run a > a@n1 | down n1 | wait 119 | nodes n1 | wait 2 | down n1 | wait 119 | node n1 2 ready=false
        | down n1 | wait 2 | wait 120 > a""",
    # Ranks pass for each other, on whatever node.
    "the placed members of its group go with it, and no pod of another group or that leaves": f"""
        {THREE} | nodes n4 | run alone > alone@n4 | terminate m1 | down n1 | wait 120 > m0 m2
        | reasons > {DOWN}, for 120 s; pod default/m0 of the same group: {DOWN}, for 120 s""",
    # As for preemption.
    "a member beyond min goes alone": f"""{RANKS.format('"min":2')} | down n1 | wait 120 > m0""",
    "a member of a group whose pods go one by one goes alone": f"""
        {RANKS.format('"min":3,"disruption":"pod"')} | down n1 | wait 120 > m0""",
    "the members of a PodGroup go together": """
        nodes n1 n2 n3 | gang 2 m0 m1 m2 > m0@n1 m1@n2 m2@n3 | down n1 | wait 120 > m0 m1 m2""",
    # A group counts as one; those that wait keep their turn.
    "only so many are evicted in a minute": f"""
        {THREE} | nodes n4 n5 n6 | run p0 p1 p2 > p0@n4 p1@n5 p2@n6 | down n1 n2 n3 n4 n5 n6 | wait 120 > m0 m1 m2 p0
        | obey | wait 59 | wait 1.1 > p1 p2""",
    "the next is evicted a minute after the first of the last minute": """
        nodes n1 n2 n3 | run p0 p1 p2 > p0@n1 p1@n2 p2@n3 | down n1 | wait 30 | down n2 | wait 10 | down n3
        | wait 80 > p0 | obey | wait 30 > p1 | obey | wait 10 | wait 19 | wait 1.1 > p2""",
    # One may lie of its own VFs: then its own pods are evicted.
    "two nodes that have lost all their VFs take turns": """
        nodes n1 n2 | small p0 p1 p2 p3 > p0@n1 p1@n1 p2@n2 p3@n2 | down n1 | wait 1 | down n2 | wait 1
        | wait 120 > p0 p2 | obey | wait 60.1 > p1 p3""",
    # No turn is lost in the next minute.
    "three nodes that have lost all their VFs take turns": """
        nodes n1 n2 n3 | small p0 p1 p2 p3 p4 p5 > p0@n1 p1@n1 p2@n2 p3@n2 p4@n3 p5@n3 | down n1 | wait 1 | down n2
        | wait 1 | down n3 | wait 1 | wait 120 > p0 p2 | obey | wait 60.1 > p4 p1 | obey | wait 60.1 > p3 p5""",
    # A minute later, and ten times: what is left then may have become whole with new members.
    "what is rejected of a group is ordered again whatever became of the others": f"""
        {THREE} | down n1 | wait 120 > m0 m1 m2 | accept m0 > m0 LostVfs: evicted: {DOWN}, for 120 s | delete m0 | wait
        59 | {"wait 60 > m1 m2 |" * 9} wait 60""",
    # The first is the business of `NeverStarts`, the others nobody's.
    "a pod that never started, leaves or is gone is not looked at": """
        nodes n1 | unstarted waits | nodes n2 n3 | run runs goes > goes@n3 runs@n2 | terminate goes | down n1 n2 n3 |
        delete runs | wait 1200""",
    # Such as for a disruption budget.
    "a pod that could not be evicted stays when its VF comes back": """
        nodes n1 | run a > a@n1 | down n1 | wait 120 > a | accept | nodes n1 | wait 61 | down n1 | wait 120 > a | accept
        | nodes n1 | wait 61""",
    # The time of the other member's loss starts again.
    "a group that could not be evicted goes for another member": f"""
        {THREE} | down n1 | wait 1 | down n2 | wait 119 > m0 m1 m2 | accept | nodes n1 | wait 61 | wait 119
        | wait 1 > m1 m0 m2""",
    "a member that could not be evicted counts for its group": f"""
        {RANKS.format('"min":2')} | down n1 | wait 120 > m0 | accept | nodes n1 | wait 61 | down n2 | wait 120 > m1""",
    # Once one member is gone the others go too, whatever becomes of the link.
    "a group that could not be evicted stays only if it is whole": f"""
        {THREE} | down n1 | wait 120 > m0 m1 m2 | accept | nodes n1 | wait 61 | down n1 | wait 120 > m0 m1 m2
        | accept m2 > m2 LostVfs: evicted: pod default/m0 of the same group: {DOWN}, for 120 s | nodes n1
        | wait 61 > m0 m1""",
}


SOON = LostVfOptions(after_s=10.0)

OTHER_OPTIONS = {
    "without the option nobody is evicted": (
        LostVfOptions(),
        "nodes n1 | run a > a@n1 | down n1 | due > never | wait 1e6",
    ),
    # A minute after each rejection, not twice in a minute.
    "a pod whose VFs are lost again is evicted for its newest loss only": (
        SOON,
        """nodes n1 | run a > a@n1 | down n1 | wait 9 | wait 1 > a | accept | wait 5 | nodes n1 | wait 5 | down n1
        | wait 9 | wait 1 > a | accept | wait 59 | wait 1 > a | accept | wait 59 | wait 1 > a""",
    ),
    # One of them is gone, so the others are evicted whatever becomes of the VFs, but each once a minute.
    "members that leave already are evicted for the newest loss of their group only": (
        SOON,
        f"""{THREE} | down n1 | wait 9 | wait 1 > m0 m1 m2 | accept m2 > m2 LostVfs: evicted: pod default/m0 of the same
        group: {DOWN}, for 10 s | wait 2 | delete m2 | wait 3 | nodes n1 | wait 5 | down n1 | wait 9 | wait 1 > m0 m1
        | accept | wait 59 | wait 1 > m0 m1""",
    ),
}


@pytest.mark.parametrize(
    ("options", "story"),
    [*((EVICTS, story) for story in STORIES.values()), *OTHER_OPTIONS.values()],
    ids=[*STORIES, *OTHER_OPTIONS],
)
def test_lost_vfs(options: LostVfOptions, story: str, life: Life) -> None:
    scene = losses(life, options)
    play(scene, story)
    scene.machine.check()


def test_a_dry_run_tells_each_once_and_evicts_nobody(life: Life) -> None:
    scene = losses(life, LostVfOptions(after_s=120.0, dry_run=True))
    play(scene, "nodes n1 | run a > a@n1 | down n1")
    (report,) = scene.work(120.0)
    assert isinstance(report, Report)
    assert (report.pod.key, report.reason) == ("default/a", "LostVfs")
    assert report.message.startswith(f"would be evicted (dry run): {DOWN}")
    assert scene.work(1200.0) == []
